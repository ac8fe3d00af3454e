"""Runs an experiment: carries out what its machine wants, over the domain API and the store."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from eaglemon.app.experiment_console import ExperimentConsole
from eaglemon.app.experiment_plans import asked_of, experiment_findings, nonce_of
from eaglemon.app.experiment_servers import ArmError, ExperimentServers, diagnosis
from eaglemon.core import experiment_events as events
from eaglemon.core.experiment import Arm, ExperimentPlan, Leg, lanes_of
from eaglemon.core.experiment_machine import ExperimentMachine
from eaglemon.core.experiment_records import ExperimentRecord
from eaglemon.core.experiment_views import ExperimentView, LaneView
from eaglemon.core.probe import ProbePlan, ProbeProgress
from eaglemon.core.sweep import hopeless
from eaglemon.core.verdict import Findings, Trial, narrow_enough
from eaglemon.core.views import ServerState
from eaglemon.errors import (
    AgentError,
    HostError,
    ProbeError,
    ServerError,
    StoreError,
)
from eaglemon.io.clock import Clock
from eaglemon.io.store import Store

LOOK_DRAWS = 2000
"""Bootstrap draws of an interim look; final figures take more."""
HOST_BACK_S = 900.0
CRASH_TOLD_S = 5.0
"""A process that dies of a request has ended this soon after."""
LOSS_TOLD_S = 1.0
_AWAY, _ENDED = "away", "ended"


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
        self._outcome = ""
        self.servers = ExperimentServers(console, store, plan, record)
        done = [Leg(arm=trial.arm, round=trial.round) for trial in self._trials]
        lanes = lanes_of(plan)
        alone = len(lanes) == 1
        self._lanes = [
            _Lane(
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
            if len(self._lanes) == 1:
                await self._lanes[0].run()
            else:
                async with asyncio.TaskGroup() as group:
                    for lane in self._lanes:
                        group.create_task(lane.run())
        except (asyncio.CancelledError, Exception) as error:
            outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else ""
            await self._end(outcome)
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
        fresh = sum(lane.measured for lane in self._lanes)
        failures = {arm: why for lane in self._lanes for arm, why in lane.machine.failed.items()}
        left = sum(1 for leg in self._plan.legs if leg not in done and leg.arm not in failures)
        return ExperimentView(
            plan=self._plan,
            lanes=tuple(lane.view() for lane in self._lanes),
            done=done,
            failures=failures,
            findings=self._findings,
            elapsed_s=elapsed_s,
            remaining_s=elapsed_s / fresh * left if fresh and not self._outcome else None,
            outcome=self._outcome,
            notes=(*self.servers.notes, *(() if self._plan.restore else self.servers.offers)),
        )

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
        if trial.arm not in self._environments:
            with contextlib.suppress(HostError, AgentError):
                environment = await self._console.environment(trial.server_id)
                self._environments[trial.arm] = environment
                await self._store.note_environment(self._plan.id, trial.arm, environment)

    async def look(self) -> events.LookedAt:
        """Compute the findings so far, and what follows from them by the stop rules."""
        self._findings = await asyncio.to_thread(
            experiment_findings,
            self._plan,
            tuple(self._trials),
            dict(self._environments),
            LOOK_DRAWS,
        )
        narrow = narrow_enough(self._findings, self._plan.stop.half_width)
        found = hopeless(self._plan, self._trials) if self._plan.kind == "sweep" else {}
        return events.LookedAt(narrow, tuple(found.items()))

    async def _end(self, outcome: str) -> None:
        if len(self._lanes) > 1 and self._plan.restore:
            await self.servers.restore()
        self._outcome = outcome
        if outcome:
            await self._store.finish(self._plan.id, outcome, at=self._clock.wall())
        self.show()


class _Lane:
    """One machine with what carries out its commands."""

    def __init__(self, run: ExperimentRun, machine: ExperimentMachine, arms: set[int]) -> None:
        self.machine = machine
        self.measured = 0
        self._run = run
        self._arms = arms
        self._server_id: str | None = None
        self._probe: ProbeProgress | None = None
        self._waits_for = ""
        self._idle_since: tuple[float, float, float] | None = None
        """When the last probe ended, and the engines' own seconds until then."""

    def view(self) -> LaneView:
        return LaneView(
            state=self.machine.state,
            leg=self.machine.leg,
            server_id=self._server_id,
            probe=self._probe,
            waits_for=self._waits_for,
        )

    async def run(self) -> None:
        try:
            await self._follow(events.Begun())
        except (asyncio.CancelledError, Exception):
            # Whatever ended it: the servers of the experiment must not outlive it.
            with contextlib.suppress(StoreError):
                await self._follow(events.CancelAsked())
            raise

    async def _follow(self, event: events.Event) -> None:
        todo = self.machine.handle(event)
        while todo:
            self._run.show()
            command, *todo = todo
            answer = await self._carry_out(command)
            if answer is not None:
                todo += self.machine.handle(answer)
        self._run.show()

    async def _carry_out(self, command: events.Command) -> events.Event | None:
        run, servers = self._run, self._run.servers
        answer: events.Event | None = None
        match command:
            case events.FindServer(arm=arm):
                answer = await self._at_host(self._find(run.plan.arms[arm]))
            case events.StartServer(arm=arm):
                answer = await self._at_host(self._start(arm, run.plan.arms[arm]))
            case events.Measure(leg=leg, server_id=server_id):
                answer = await self._at_host(self._measure(leg, server_id))
            case events.AwaitHost(arm=arm):
                answer = await self._await_host(run.plan.arms[arm].host)
            case events.NoteFailure(arm=arm, reason=reason):
                await run.store.note_failure(run.plan.id, arm, reason)
            case events.Look():
                answer = await run.look()
            case events.Clear():
                await servers.clear(self._arms)
                answer = events.Cleared()
            case events.Restore():
                await servers.restore()
                answer = events.Restored()
            case events.Finish():
                self._server_id = self._probe = None
        return answer

    async def _at_host(self, work: Awaitable[events.Event]) -> events.Event:
        try:
            return await work
        except HostError as error:
            return events.HostAway(error.message)

    async def _find(self, arm: Arm) -> events.Event:
        servers = self._run.servers
        away = servers.away(arm.host)
        if away is not None:
            return events.HostAway(away)
        try:
            found = await servers.find(arm, timeout_s=arm.profile.limits.ready_s)
            if found is not None:
                return events.ServerUp(found.id)
            return events.RoomMade(await servers.make_room(arm))
        except (ArmError, ServerError) as error:
            return events.RoomRefused(error.message)

    async def _start(self, index: int, arm: Arm) -> events.Event:
        self._server_id = None
        try:
            view = await self._run.servers.start(index, arm)
        except (ArmError, AgentError) as error:
            return events.StartFailed(error.message)
        return events.ServerUp(view.id)

    async def _measure(self, leg: Leg, server_id: str) -> events.Event:
        run = self._run
        self._server_id, self._probe = server_id, None
        arm = run.plan.arms[leg.arm]
        plan = run.console.probe_plan(server_id, asked_of(arm))
        if plan.nonce:
            plan = replace(plan, nonce=nonce_of(run.plan, leg))
        turn_s = self._turn_s()
        started_at = run.clock.wall()
        probe = await self._probed(server_id, arm.host, plan)
        if not isinstance(probe, ProbeProgress):
            return probe
        view = run.console.snapshot().server(server_id)
        figures = probe.figures
        counted = figures.counts if figures.accept_source == "counter difference" else None
        servers = run.servers
        self._idle_since = (run.clock.monotonic(), servers.stop_s, servers.start_s)
        await run.keep_trial(
            Trial(
                arm=leg.arm,
                round=leg.round,
                records=probe.records,
                counter_difference=counted,
                memory_bytes=view.memory_used_bytes if view else None,
                startup_s=servers.startup_s.get(server_id),
                turn_s=turn_s,
                started_at=started_at,
                server_id=server_id,
                notes=probe.notes,
            )
        )
        self.measured += 1
        return events.Measured(run.elapsed_s)

    async def _probed(
        self, server_id: str, host: str, plan: ProbePlan
    ) -> ProbeProgress | events.HostAway | events.MeasureFailed:
        def seen(progress: ProbeProgress) -> None:
            self._probe = progress
            self._run.show()

        watch = asyncio.create_task(self._until_gone(server_id, host), name="watch of the server")
        try:
            probe = await self._run.console.probe(server_id, plan, seen=seen)
            bad = probe.figures.failed + probe.figures.cut
            if bad and await _ends_with(watch, LOSS_TOLD_S) == _AWAY:
                return events.HostAway(f"the connection broke under {bad} requests")
        except (ProbeError, ServerError) as error:
            # The requests break first; why is told a moment later.
            end = await _ends_with(watch, CRASH_TOLD_S)
            if end == _AWAY:
                return events.HostAway(error.message)
            view = self._run.console.snapshot().server(server_id)
            if end is None or view is None or view.cause is None:
                return events.MeasureFailed(error.message)
            return events.MeasureFailed(f"{diagnosis(view)} ({error.message})")
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        return probe

    async def _until_gone(self, server_id: str, host: str) -> str:
        """Return when the host or the server is out of reach, or the server has ended."""
        async for snapshot in self._run.console.updates():
            view = snapshot.server(server_id)
            lost = view is not None and view.state is ServerState.LOST
            if lost or self._run.servers.away(host) is not None:
                return _AWAY
            if view is not None and view.state.ended:
                return _ENDED
        return _ENDED

    async def _await_host(self, host: str) -> events.Event:
        servers = self._run.servers
        self._waits_for = f"{host}: {servers.away(host) or 'its servers'}"
        self._run.show()
        back = await servers.until(lambda _: servers.away(host) is None, HOST_BACK_S)
        if back:
            # Its servers are known again only after the first list of runs.
            await self._run.console.settle()
        self._waits_for = ""
        return events.HostBack()

    def _turn_s(self) -> float | None:
        """Return the seconds since the last probe, without the engines' own stops and starts."""
        if self._idle_since is None:
            return None
        since, stop_s, start_s = self._idle_since
        servers = self._run.servers
        engines_s = servers.stop_s - stop_s + servers.start_s - start_s
        return max(0.0, self._run.clock.monotonic() - since - engines_s)


async def _ends_with(watch: asyncio.Task[str], timeout_s: float) -> str | None:
    """Return what a watch ends with, ``None`` when it does not end in time."""
    await asyncio.wait({watch}, timeout=timeout_s)
    return watch.result() if watch.done() else None
