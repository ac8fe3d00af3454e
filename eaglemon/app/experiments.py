"""The experiments of one console: planned, begun in the background, watched, cancelled, resumed."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eaglemon.app.experiment_console import ExperimentConsole
from eaglemon.app.experiment_plans import (
    arm_of,
    experiment_findings,
    new_id,
    outlook_of,
    sweep_arms,
)
from eaglemon.app.experimenting import ExperimentRun
from eaglemon.core.experiment import Arm, ExperimentPlan
from eaglemon.core.experiment_records import ExperimentRecord, ExperimentSummary
from eaglemon.core.experiment_views import ExperimentView, Outlook
from eaglemon.core.run_comparison import (
    ProfileHistory,
    RunComparison,
    compare_runs,
    history_of,
)
from eaglemon.core.stats import DRAWS
from eaglemon.core.stored_worth import is_about, stored_worth
from eaglemon.core.sweep import Skipped
from eaglemon.core.verdict import Findings
from eaglemon.core.views import ServerView
from eaglemon.core.worth import StoredWorth
from eaglemon.errors import EaglemonError, UsageError
from eaglemon.io.claims import claim
from eaglemon.io.clock import Clock, SystemClock
from eaglemon.io.files import write_new
from eaglemon.io.store import Store

_log = logging.getLogger(__name__)

MEASURED_RUNS = 8
"""Runs that are read for the history of a profile."""


class ExperimentService:
    """Implements ``eaglemon.app.api.Experiments`` over a console and the history."""

    def __init__(
        self, console: ExperimentConsole, store: Store, *, clock: Clock | None = None
    ) -> None:
        self._console = console
        self._store = store
        self._clock = clock or SystemClock()
        self._tasks: dict[str, asyncio.Task[ExperimentView]] = {}
        self._cancelling: set[str] = set()
        self._runs: dict[str, ExperimentRun] = {}
        """Under way: asked for how they stand, since time passes between their steps too."""
        self._ended_views: dict[str, ExperimentView] = {}
        self._left: tuple[str, ...] = ()
        """Servers of experiments that have ended here without seeing them stopped."""

    # Planning.

    def arm(
        self, text: str, host: str, settings: Mapping[str, str] | None = None, *, name: str = ""
    ) -> Arm:
        """Return the arm of ``PROFILE[+KEY=VALUE...][@HOST]``."""
        return arm_of(self._console, text, host, settings or {}, name=name)

    def sweep_arms(
        self,
        profile: str,
        host: str,
        settings: Mapping[str, str] | None = None,
        *,
        steps: Sequence[int],
        topk: Sequence[int] = (1,),
        draft_tokens: Sequence[int] | None = None,
        concurrency: Sequence[int] = (1,),
    ) -> tuple[tuple[Arm, ...], list[Skipped]]:
        """Return the arms of a sweep, and what is left out and why; ``None`` tokens are auto."""
        return sweep_arms(
            self._console,
            profile,
            host,
            settings or {},
            steps=steps,
            topk=topk,
            draft_tokens=draft_tokens,
            concurrency=concurrency,
        )

    def new_id(self, kind: str) -> str:
        """Return an id for a new experiment of this kind."""
        return new_id(kind, self._clock.wall())

    async def outlook(self, plan: ExperimentPlan) -> Outlook:
        """Return what the experiment will do; starts nothing."""
        return await outlook_of(self._console, self._store, plan)

    # Running.

    async def run(
        self, plan: ExperimentPlan, *, changed: Callable[[ExperimentView], None] | None = None
    ) -> ExperimentView:
        """Run an experiment to its end; cancelling the call cancels it and clears its servers."""
        return await self._run(plan, None, changed)

    async def resume(
        self, text: str = "", *, changed: Callable[[ExperimentView], None] | None = None
    ) -> ExperimentView:
        """Go on with an experiment whose console was killed, the newest one by default."""
        record = await self.unfinished(text)
        return await self._run(record.plan, record, changed)

    async def unfinished(self, text: str = "") -> ExperimentRecord:
        """Return an experiment that was not ended; raises ``UsageError`` where there is none."""
        names = await self._store.unfinished()
        if not text and not names:
            raise UsageError("no experiment was cut off", hint="eaglemon runs lists them all")
        record = await self._store.experiment(text or names[0])
        if record.outcome:
            raise UsageError(f"{record.plan.id} has ended: {record.outcome}")
        return record

    def begin(self, plan: ExperimentPlan) -> None:
        """Run an experiment in the background; ``view`` tells how far it is."""
        self._begin(plan, None)

    async def begin_again(self, text: str = "") -> str:
        """Go on in the background with one whose console was killed; return its id."""
        record = await self.unfinished(text)
        self._begin(record.plan, record)
        return record.plan.id

    def view(self, experiment: str) -> ExperimentView | None:
        """Return an experiment of this console as it stands."""
        run = self._runs.get(experiment)
        return self._ended_views.get(experiment) if run is None else run.view()

    def views(self) -> Sequence[ExperimentView]:
        """Return the experiments of this console, newest last."""
        return (*self._ended_views.values(), *(run.view() for run in self._runs.values()))

    async def cancel(self, experiment: str) -> None:
        """End an experiment in the background; returns when its servers are gone."""
        task = self._tasks.get(experiment)
        if task is None:
            return
        if experiment not in self._cancelling:
            self._cancelling.add(experiment)
            task.cancel()
        # Not gathered: whoever stops waiting must not cancel it once more.
        await asyncio.wait({task})

    @property
    def left(self) -> tuple[str, ...]:
        """The servers of experiments here that are not known to have ended: ids, or in words.

        Those that a whole experiment was to keep are not among them.
        """
        running = (one for run in self._runs.values() for one in run.servers.left)
        return (*self._left, *running)

    async def close(self) -> None:
        """End all experiments in the background, and their servers."""
        for experiment in tuple(self._tasks):
            await self.cancel(experiment)

    # History.

    async def history(self, limit: int = 50) -> list[ExperimentSummary]:
        """Return the newest experiments first."""
        return await self._store.experiments(limit)

    async def record(self, text: str) -> ExperimentRecord:
        """Return one experiment by id, beginning of an id, or ``last``."""
        return await self._store.experiment(text)

    async def findings(self, record: ExperimentRecord, *, draws: int = DRAWS) -> Findings:
        """Return what an experiment has shown, computed from its raw records."""
        return await asyncio.to_thread(
            experiment_findings, record.plan, record.trials, record.environments, draws
        )

    async def compare(self, one: str, other: str) -> RunComparison:
        """Return two stored experiments side by side, the earlier one first."""
        records = (await self._store.experiment(one), await self._store.experiment(other))
        return await asyncio.to_thread(compare_runs, *records)

    async def write_report(self, text: str, folder: Path) -> Path:
        """Write the report of an experiment as HTML into a new file; return where it is."""
        record = await self._store.experiment(text)
        found = await self.findings(record)
        # Imported here because no console needs it before a report is wanted.
        from eaglemon.report.render import render  # noqa: PLC0415

        content = await asyncio.to_thread(render, record, found, ".html")
        return await asyncio.to_thread(write_new, folder, record.plan.id, ".html", content)

    async def profile_history(self, profile: str) -> ProfileHistory:
        """Return earlier starts of a profile and what it reached in the newest runs."""
        starts = await self._store.startups_of(profile)
        mine = [one.id for one in await self._store.experiments() if profile in one.arms]
        records = [await self._store.experiment(run) for run in mine[:MEASURED_RUNS]]
        measured = await asyncio.to_thread(history_of, profile, records)
        return ProfileHistory(starts=tuple(starts), measured=measured)

    async def worth(self, server: ServerView) -> StoredWorth | None:
        """Return the newest comparison of a server started as this one was on its host."""
        there = [one.id for one in await self._store.experiments() if server.host in one.hosts]
        for run in there[:MEASURED_RUNS]:
            record = await self._store.experiment(run)
            if is_about(server, record):
                found = stored_worth(server, record, await self.findings(record))
                if found is not None:
                    return found
        return None

    # Inside.

    def _begin(self, plan: ExperimentPlan, record: ExperimentRecord | None) -> None:
        if plan.id in self._tasks:
            raise UsageError(f"{plan.id} is under way already")
        task = asyncio.create_task(self._run(plan, record, None), name=f"experiment {plan.id}")
        self._tasks[plan.id] = task
        task.add_done_callback(lambda done: self._ended(plan.id, done))

    def _ended(self, experiment: str, task: asyncio.Task[ExperimentView]) -> None:
        self._tasks.pop(experiment, None)
        self._cancelling.discard(experiment)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        told = str(error) if isinstance(error, EaglemonError) else "it ended by a mistake of ours"
        if not isinstance(error, EaglemonError):
            _log.error("experiment %s ended unexpectedly", experiment, exc_info=error)
        view = self._ended_views.get(experiment)
        if view is not None:
            notes = (*view.notes, told)
            self._ended_views[experiment] = replace(view, outcome="failed", notes=notes)

    async def _run(
        self,
        plan: ExperimentPlan,
        record: ExperimentRecord | None,
        changed: Callable[[ExperimentView], None] | None,
    ) -> ExperimentView:
        run = ExperimentRun(
            self._console,
            self._store,
            plan,
            clock=self._clock,
            record=record,
            changed=changed or (lambda _: None),
        )
        self._runs[plan.id] = run
        self._ended_views.pop(plan.id, None)
        try:
            with claim(self._store.path.parent, plan.id):
                return await run.run()
        except (asyncio.CancelledError, Exception):
            self._left += run.servers.left
            raise
        finally:
            self._ended_views[plan.id] = self._runs.pop(plan.id).view()
