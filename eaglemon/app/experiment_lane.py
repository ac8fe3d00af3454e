"""One lane of an experiment: carries out what its machine wants, a leg after the other."""

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING

from eaglemon.app.experiment_plans import asked_of, nonce_of
from eaglemon.app.experiment_servers import ArmError, diagnosis
from eaglemon.core import experiment_events as events
from eaglemon.core.experiment import Arm, Leg
from eaglemon.core.experiment_machine import ExperimentMachine
from eaglemon.core.experiment_views import LaneView
from eaglemon.core.probe import ProbePlan, ProbeProgress
from eaglemon.core.verdict import Trial
from eaglemon.core.views import ServerState
from eaglemon.errors import (
    AgentError,
    HostError,
    ProbeError,
    ServerError,
    StoreError,
    TimeLimitError,
)

if TYPE_CHECKING:
    from eaglemon.app.experimenting import ExperimentRun

HOST_BACK_S = 900.0
CRASH_TOLD_S = 5.0
"""A process that dies of a request has ended this soon after."""
LOSS_TOLD_S = 1.0
_AWAY, _ENDED = "away", "ended"


class Lane:
    """One machine with what carries out its commands; ``run`` once."""

    def __init__(self, run: "ExperimentRun", machine: ExperimentMachine, arms: set[int]) -> None:
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
        """Return what it is doing now."""
        return LaneView(
            state=self.machine.state,
            leg=self.machine.leg,
            server_id=self._server_id,
            probe=self._probe,
            waits_for=self._waits_for,
        )

    async def run(self) -> None:
        """Measure all legs. Where it is cancelled or breaks, ``cancel`` is to be called."""
        await self._follow(events.Begun())

    async def cancel(self) -> None:
        """Stop its servers, whatever ended it; once it was finished there is nothing to do."""
        with contextlib.suppress(StoreError):
            await self._follow(events.CancelAsked())

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
                # A new leg: the bar of the one before is no news of it.
                self._server_id = self._probe = None
                run.show()
                answer = await self._at_host(self._find(run.plan.arms[arm]))
            case events.StartServer(arm=arm):
                answer = await self._at_host(self._start(arm, run.plan.arms[arm]))
            case events.Measure(leg=leg, server_id=server_id):
                answer = await self._at_host(self._measure(leg, server_id))
            case events.AwaitHost(arm=arm):
                answer = await self._await_host(run.plan.arms[arm].host)
            case events.NoteFailure(arm=arm, reason=reason):
                await run.store.note_failure(run.plan.id, arm, reason)
            case events.NoteGivenUp(arm=arm, reason=reason):
                await run.store.note_given_up(run.plan.id, arm, reason)
            case events.Look():
                answer = await run.look()
            case events.Clear():
                self._probe = None
                await servers.clear(self._arms, stopping=self._turn_to)
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
            return events.RoomMade(await servers.make_room(arm, stopping=self._turn_to))
        except (ArmError, AgentError, ServerError, TimeLimitError) as error:
            return events.RoomRefused(error.message)

    async def _start(self, index: int, arm: Arm) -> events.Event:
        self._server_id = None
        try:
            view = await self._run.servers.start(index, arm, launched=self._turn_to)
        except (ArmError, AgentError) as error:
            return events.StartFailed(error.message)
        return events.ServerUp(view.id)

    def _turn_to(self, server_id: str) -> None:
        """Show this server from now on."""
        self._server_id = server_id
        self._run.show()

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
