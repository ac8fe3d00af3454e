"""Runs an experiment: its lanes, what they have found, and how far they are."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

from eaglemon.app.experiment_console import ExperimentConsole
from eaglemon.app.experiment_lane import Lane
from eaglemon.app.experiment_plans import expected_s, experiment_findings
from eaglemon.app.experiment_servers import ExperimentServers
from eaglemon.core import experiment_events as events
from eaglemon.core.experiment import ExperimentPlan, Leg, lanes_of
from eaglemon.core.experiment_machine import ExperimentMachine
from eaglemon.core.experiment_records import ExperimentRecord
from eaglemon.core.experiment_views import ExperimentView
from eaglemon.core.stats import DRAWS
from eaglemon.core.sweep import hopeless
from eaglemon.core.verdict import Findings, Trial, narrow_enough
from eaglemon.errors import AgentError, HostError
from eaglemon.io.clock import Clock
from eaglemon.io.store import Store

LOOK_DRAWS = 2000
"""Bootstrap draws of an interim look; final figures take more."""


class ExperimentRun:
    """One experiment in this console; ``run`` once."""

    def __init__(
        self,
        console: ExperimentConsole,
        store: Store,
        plan: ExperimentPlan,
        *,
        clock: Clock,
        record: ExperimentRecord | None = None,
        changed: Callable[[ExperimentView], None] = lambda _: None,
    ) -> None:
        """``record`` is what an earlier console has stored, to go on from there."""
        self._console = console
        self._store = store
        self._plan = plan
        self._clock = clock
        self._changed = changed
        self._resumed = record is not None
        self._trials: list[Trial] = list(record.trials if record else ())
        self._environments = dict(record.environments if record else {})
        self._findings: Findings | None = None
        self._began = clock.monotonic()
        self._paced_s = 0.0
        """When the last measurement was stored, since the beginning."""
        self._expected_s: float | None = None
        """How long the whole takes, by earlier starts."""
        self._outcome = ""
        self.servers = ExperimentServers(console, store, plan, record)
        done = [Leg(arm=trial.arm, round=trial.round) for trial in self._trials]
        lanes = lanes_of(plan)
        alone = len(lanes) == 1
        self._lanes = [
            Lane(
                self,
                ExperimentMachine(
                    legs,
                    stop=plan.stop,
                    restore=plan.restore and alone,
                    keep=plan.keep,
                    watch_width=alone,
                    look_often=plan.kind == "sweep",
                    done=done,
                    failed=record.failures if record else None,
                    given_up=record.given_up if record else None,
                ),
                {leg.arm for leg in legs},
            )
            for legs in lanes
        ]

    async def run(self) -> ExperimentView:
        """Run to the end. When cancelled, or when an error ends it, no server is left behind."""
        if not self._resumed:
            await self._store.begin(self._plan, at=self._clock.wall())
        try:
            self._expected_s = await expected_s(self._console, self._store, self._plan)
            if self._trials:
                # What an earlier console has measured is shown before this one has more.
                await self.look()
            await self._measure()
        except (asyncio.CancelledError, Exception) as error:
            outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else ""
            await _to_its_end(self._clean_up(outcome))
            raise
        outcomes = {lane.machine.outcome for lane in self._lanes}
        order = ("time-up", "narrow", "done", "failed")
        await self._end(next((one for one in order if one in outcomes), "failed"))
        await self._store.prune(now=self._clock.wall())
        return self.view()

    def view(self) -> ExperimentView:
        """Return what to show now."""
        elapsed_s = self._clock.monotonic() - self._began
        done = tuple(Leg(arm=trial.arm, round=trial.round) for trial in self._trials)
        failures = {arm: why for lane in self._lanes for arm, why in lane.machine.failed.items()}
        given_up = {arm: why for lane in self._lanes for arm, why in lane.machine.given_up.items()}
        ended = failures | given_up
        left = sum(1 for leg in self._plan.legs if leg not in done and leg.arm not in ended)
        return ExperimentView(
            plan=self._plan,
            lanes=tuple(lane.view() for lane in self._lanes),
            done=done,
            failures=failures,
            given_up=given_up,
            findings=self._findings,
            elapsed_s=elapsed_s,
            remaining_s=None if self._outcome else self._remaining_s(elapsed_s, left),
            outcome=self._outcome,
            notes=(*self.servers.notes, *(() if self._plan.restore else self.servers.offers)),
        )

    def _remaining_s(self, elapsed_s: float, left: int) -> float | None:
        """Say how long ``left`` measurements take: at the pace so far, else by earlier starts."""
        fresh = sum(lane.measured for lane in self._lanes)
        if fresh:
            leg_s = self._paced_s / fresh
            # One that takes longer than those before ends soon, as far as anyone knows.
            return max(leg_s * left - (elapsed_s - self._paced_s), leg_s * (left - 1), 0.0)
        if self._expected_s is None:
            return None
        remaining_s = self._expected_s * left / max(1, len(self._plan.legs)) - elapsed_s
        return remaining_s if remaining_s > 0 else None

    async def _measure(self) -> None:
        if len(self._lanes) == 1:
            await self._lanes[0].run()
            return
        try:
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes:
                    group.create_task(lane.run())
        except BaseExceptionGroup as errors:
            # The first that broke is what ended it, and is told as it is with one lane.
            raise errors.exceptions[0] from errors

    async def _clean_up(self, outcome: str) -> None:
        """Stop the servers of all lanes, then store the outcome: it says that none is left."""
        cancelled = (lane.cancel() for lane in self._lanes)
        ends = await asyncio.gather(*cancelled, return_exceptions=True)
        for error in ends:
            if error is not None:
                raise error
        await self._end(outcome)

    # What lanes use.

    @property
    def plan(self) -> ExperimentPlan:
        """The experiment."""
        return self._plan

    @property
    def console(self) -> ExperimentConsole:
        """The domain API."""
        return self._console

    @property
    def store(self) -> Store:
        """The history."""
        return self._store

    @property
    def clock(self) -> Clock:
        """The clock."""
        return self._clock

    @property
    def elapsed_s(self) -> float:
        """Seconds since this console began or resumed it."""
        return self._clock.monotonic() - self._began

    def show(self) -> None:
        """Tell the watcher that something changed."""
        self._changed(self.view())

    async def keep_trial(self, trial: Trial) -> None:
        """Store a measurement; its arm's environment with the first."""
        await self._store.add_trial(self._plan.id, trial)
        same = (trial.arm, trial.round)
        self._trials = [one for one in self._trials if (one.arm, one.round) != same] + [trial]
        self._paced_s = self.elapsed_s
        if trial.arm not in self._environments:
            with contextlib.suppress(HostError, AgentError):
                environment = await self._console.environment(trial.server_id)
                self._environments[trial.arm] = environment
                await self._store.note_environment(self._plan.id, trial.arm, environment)

    async def look(self) -> events.LookedAt:
        """Compute the findings so far, and what follows from them by the stop rules."""
        self._findings = await self._found(LOOK_DRAWS)
        narrow = narrow_enough(self._findings, self._plan.stop.half_width)
        found = hopeless(self._plan, self._trials) if self._plan.kind == "sweep" else {}
        return events.LookedAt(narrow, tuple(found.items()))

    async def _found(self, draws: int) -> Findings:
        return await asyncio.to_thread(
            experiment_findings,
            self._plan,
            tuple(self._trials),
            dict(self._environments),
            draws,
        )

    async def _end(self, outcome: str) -> None:
        if len(self._lanes) > 1 and self._plan.restore:
            await self.servers.restore()
        if outcome:
            await self._store.finish(self._plan.id, outcome, at=self._clock.wall())
        if self._trials:
            # As the history will show it: of all measurements, also where a round is not whole.
            whole = outcome in {"done", "narrow", "time-up"}
            self._findings = await self._found(DRAWS if whole else LOOK_DRAWS)
        self._outcome = outcome
        self.show()


async def _to_its_end(work: Coroutine[object, object, None]) -> None:
    """Await work that cancelling its caller must not break off."""
    task = asyncio.create_task(work, name="clean-up of an experiment")
    while not task.done():
        # Whoever cancels once more waits for the same end.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    await task
