"""Keeps one server: runs its machine, carries its commands out, and reads its log and metrics.

One keeper per run, from the launch (or from finding the run on the host) until the console ends.
It owns no connection: it uses the host's link while there is one.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime

from eaglemon.app.foreign import foreign_events
from eaglemon.app.health_watch import HealthWatch
from eaglemon.app.history import MemoryHistory, PastStarts, StartHistory
from eaglemon.app.hooks import run_hooks
from eaglemon.app.host import Host
from eaglemon.app.late_runs import find_out, may_have_begun
from eaglemon.app.memory import watch_release
from eaglemon.app.meter import Meter
from eaglemon.app.preflight import refuse
from eaglemon.app.runs import request_of
from eaglemon.app.seen import Seen
from eaglemon.app.server_log import ServerLog
from eaglemon.app.server_metrics import follow_metrics
from eaglemon.app.tasks import TaskBag
from eaglemon.core import lifecycle_events as events
from eaglemon.core.foreign import ForeignServer
from eaglemon.core.hosts import HostSample
from eaglemon.core.lifecycle import NOT_STARTED, ServerMachine
from eaglemon.core.phases import FaultSeen, LogEvent, LogReady, Phase, PhaseEntered
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.runs import RunRecord, RunStatus
from eaglemon.core.views import LaunchPlan, ServerState
from eaglemon.engines.base import Engine
from eaglemon.errors import EaglemonError, HostError
from eaglemon.io.clock import Clock
from eaglemon.io.http import HttpClient

_log = logging.getLogger(__name__)


class Keeper:
    """One server of one host."""

    def __init__(
        self,
        *,
        host: Host,
        engine: Engine,
        profile: Profile,
        clock: Clock,
        changed: Callable[[], None],
        check: Callable[[LaunchPlan], Awaitable[list[Problem]]],
        history: StartHistory | None = None,
    ) -> None:
        self.host = host
        self.engine = engine
        self.profile = profile
        self.id = ""
        self.record: RunRecord | None = None
        self.status: RunStatus | None = None
        self.plan: LaunchPlan | None = None
        self.probe: ProbeProgress | None = None
        self.foreign: ForeignServer | None = None
        """Set where no console started it: it is watched, and never stopped from here."""
        self.launched_wall = clock.wall()
        self.machine = ServerMachine(profile.limits)
        self.seen = Seen(moved_at=clock.monotonic())
        self.meter = Meter(ceiling=profile.speculation.ceiling if profile.speculation else None)
        self.preflight_notes: list[str] = []
        self.log = ServerLog(engine.log_rules, meter=self.meter, clock=clock, heard=self._heard)
        self.model_name = profile.served_name or profile.model
        self._clock = clock
        self.changed = changed
        self._check = check
        self._force = False
        self.refused: EaglemonError | None = None
        self._tasks = TaskBag("server", broken=self.seen.broken, changed=changed)
        self._http: HttpClient | None = None
        self._stop_asked = False
        self._sent = False
        """The host was asked to start the run."""
        self.past = PastStarts(history or MemoryHistory(), host.spec.name, profile)
        self._health = HealthWatch(self, clock)

    # Ways in.

    def launch(self, plan: LaunchPlan, *, force: bool, known: Sequence[str] = ()) -> None:
        """Start the server of ``plan``; ``known`` are the runs that its check judges."""
        self.plan = plan
        self._force = force
        wall = datetime.fromtimestamp(self._clock.wall()).astimezone()
        self._request = request_of(plan, self.host.sample, wall, known=known, force=force)
        self.id = self._request.id
        self._tasks.start("history", self.past.recall())
        self.feed(events.LaunchAsked())

    def adopt(self, status: RunStatus) -> None:
        """Take over a run found on the host."""
        record = status.record
        self.id = record.id
        self.launched_wall = record.launched_at - self.host.clock_offset_s
        self.log.catch_up(
            launched_at=record.launched_at,
            age_s=self._age_s,
            history_bytes=status.activity.log_bytes if status.activity else 0,
            spawned=record.pid is not None,
        )
        self.status_seen(status)
        if self.machine.state.starting:
            self._tasks.start("history", self.past.recall())

    def watch(self, server: ForeignServer, there: Callable[[], Awaitable[bool]]) -> None:
        """Watch a server that somebody else started; ``there`` tells whether it still runs."""
        self.foreign = server
        self.id = server.id
        self.launched_wall = server.started_at - self.host.clock_offset_s
        self.feed(events.StatusSeen(living=len(server.pids), age_s=self._age_s))
        self._tasks.start("foreign", self._look_for(there))

    def status_seen(self, status: RunStatus) -> None:
        """Take the host's account of the run."""
        first = self.status is None
        self.status = status
        self.record = status.record
        self.seen.pids_ever |= self.pids.union(status.stop.pids if status.stop else ())
        if status.activity is not None:
            self.seen.note_activity(status.activity, self._clock.monotonic())
        if self.machine.state is ServerState.SPAWNING:
            return  # The spawn's own answer comes first; it looks at the status again.
        before = self.machine.state
        self.feed(
            events.StatusSeen(
                living=len(status.processes),
                exit=status.exit,
                stop=status.stop,
                age_s=self._age_s,
            )
        )
        if first or before is ServerState.LOST:
            self._follow_log()

    def run_missing(self) -> None:
        """Take the news that the host does not know this run."""
        if self.foreign is None:
            self.feed(events.RunMissing())

    def sample_seen(self, sample: HostSample) -> None:
        """Take a GPU sample: which GPUs the run holds, and how much."""
        pids = self.pids
        mine = [p for p in sample.processes if p.run_id == self.id or p.pid in pids]
        self.seen.note_holders(mine, self._clock.monotonic())

    def link_lost(self, reason: str) -> None:
        """Take the news that the host cannot be reached."""
        self._tasks.cancel("log")
        self._tasks.cancel("metrics")
        self._tasks.cancel("pulse")
        self._http = None
        self.feed(events.LinkLost(reason=reason))

    def stop(self, grace_s: float) -> None:
        """Stop the server."""
        self._stop_asked = True
        if self.state is ServerState.SPAWNING and not self._sent:
            # Its hooks run, and the host knows nothing of it.
            self._tasks.cancel("spawn")
            reason = f"{NOT_STARTED}; a hook that had begun ends by itself"
            self.feed(events.SpawnFailed(reason=reason))
            return
        self.feed(events.StopAsked(grace_s=grace_s))

    async def hooks_done(self) -> None:
        """Wait until the hooks after a stop have ended."""
        await self._tasks.finish("hooks")

    async def close(self) -> None:
        """Let go of the server; it keeps running."""
        await self._tasks.finish("history")
        await self._tasks.close()
        if self._http is not None:
            await self._http.close()

    @property
    def confirmed(self) -> bool:
        """Whether what is shown rests on asking, not only on finding the run.

        A run that was found counts as starting until its health was asked and a token generated
        or refused, unless it is silent for seconds; and until its log was read to the present.
        """
        # While it warms up, the detail is why there is no token yet.
        warming = self.state is ServerState.WARMING
        told = self.machine.detail if warming else self.seen.health and not self.machine.bad_polls
        asked = told or not self.state.starting or self.seen.is_silent(self._clock.monotonic())
        return self.log.caught_up and bool(asked)

    @property
    def state(self) -> ServerState:
        """The machine's."""
        return self.machine.state

    @property
    def pids(self) -> frozenset[int]:
        """The living processes of the run."""
        if self.foreign is not None:
            return frozenset() if self.machine.state.ended else frozenset(self.foreign.pids)
        return frozenset(p.pid for p in self.status.processes) if self.status else frozenset()

    @property
    def _age_s(self) -> float:
        return max(0.0, self._clock.wall() - self.launched_wall)

    def http(self) -> HttpClient:
        """Return the client of this server; raises ``HostError`` while the host is not up."""
        self._http = self._http or self.new_http()
        return self._http

    def new_http(self) -> HttpClient:
        """Return a client with connections of its own, for a probe's virtual user."""
        return HttpClient(
            self.host.transport,
            address=self.profile.address,
            port=self.profile.port,
            api_key=self.engine.api_key(self.profile),
        )

    # The machine.

    def feed(self, event: events.Event) -> None:
        """Give the machine an event and carry out what it answers."""
        before = self.machine.state
        commands = self.machine.handle(event)
        if self.machine.state is not before:
            self._state_changed(self.machine.state)
        for command in commands:
            self._carry_out(command)
        self.changed()

    def _state_changed(self, state: ServerState) -> None:
        match state:
            case ServerState.SPAWNING:
                self.log.enter(Phase.SPAWN)
            case ServerState.STARTING:
                self.log.enter(Phase.IMPORT)
            case ServerState.WARMING:
                self.log.enter(Phase.WARM_UP)
            case ServerState.READY:
                self.log.enter(Phase.READY)
                self.log.finish()
                self._tasks.keep("metrics", self._follow_metrics)
                if not self.engine.health_generates:
                    self._tasks.keep("pulse", self._health.pulse)
                if self.log.knows_ready:
                    phases = self.log.track.views(self._clock.monotonic())
                    remembered = self.past.remember(self.id, self.launched_wall, phases)
                    self._tasks.start("history", remembered)
            case ServerState.STOPPING | ServerState.RELEASING:
                self._tasks.cancel("pulse")
                self.log.stop(None)
            case ServerState.FAILED:
                self._end()
                self.log.fail(self.seen.ended_wall)
            case ServerState.STOPPED:
                self._end()
                self.log.stop(self.seen.ended_wall)
                if self._stop_asked and self.profile.hooks.after_stop:
                    self._tasks.start("hooks", self._after_stop())
            case _:
                pass

    def _end(self) -> None:
        self._tasks.cancel("metrics")
        self._tasks.cancel("pulse")
        exit_ = self.machine.exit
        failed = self.machine.state is ServerState.FAILED
        found = self.plan is None and not self.machine.release_proven
        if exit_ is not None and exit_.at is not None and (failed or found):
            self.seen.ended_wall = exit_.at - self.host.clock_offset_s
        else:
            self.seen.ended_wall = self._clock.wall()

    def _carry_out(self, command: events.Command) -> None:
        match command:
            case events.RunPreflight():
                self._tasks.start("preflight", self._preflight())
            case events.Spawn():
                self._tasks.start("spawn", self._spawn())
            case events.PollHealth(after_s=after_s):
                self._tasks.start("health", self._health.poll(after_s))
            case events.AskToken(after_s=after_s):
                self._tasks.start("token", self._health.first_token(after_s))
            case events.StopRun(grace_s=grace_s):
                self._tasks.start("stop", self._stop_run(grace_s))
            case events.WatchMemory():
                self._tasks.start("memory", watch_release(self))
            case events.SetTimer(timer=timer, after_s=after_s):
                self._tasks.start(f"timer {timer}", self._fire(timer, after_s))
            case events.ClearTimer(timer=timer):
                self._tasks.cancel(f"timer {timer}")
                if timer is events.Timer.RELEASE:
                    self._tasks.cancel("memory")
            case events.StopPolling():
                self._tasks.cancel("health")
                self._tasks.cancel("token")

    async def _preflight(self) -> None:
        if self.plan is None:
            return
        try:
            problems = await self._check(self.plan)
            if not self._force:
                refuse(problems)
        except EaglemonError as error:
            self.refused = error
            self.feed(events.PreflightFailed(reason=str(error)))
            return
        self.preflight_notes.extend(str(problem) for problem in problems)
        self.feed(events.PreflightPassed())

    async def _spawn(self) -> None:
        try:
            link = self.host.link
            await run_hooks(link, self.profile, self.profile.hooks.before_launch)
            self._sent = True
            record = await link.start_run(self._request)
        except EaglemonError as error:
            if may_have_begun(error, sent=self._sent):
                await find_out(self, str(error), self._clock)
                return
            self.refused = error
            self.feed(events.SpawnFailed(reason=str(error)))
            return
        self.record = record
        self.launched_wall = record.launched_at - self.host.clock_offset_s
        self.log.launched(self.launched_wall)
        self.feed(events.Spawned(pid=record.pid or 0))
        self._follow_log()
        if self.status is not None:
            self.status_seen(self.status)

    async def _stop_run(self, grace_s: float) -> None:
        try:
            await self.host.link.stop_run(self.id, grace_s=grace_s)
        except HostError as error:
            self.feed(events.LinkLost(reason=str(error)))
        except EaglemonError as error:
            # One that comes late all the same is told by the host's account of the run.
            self.feed(events.StopFailed(reason=str(error)))

    async def _fire(self, timer: events.Timer, after_s: float) -> None:
        await self._clock.sleep(after_s)
        self.feed(events.TimerFired(timer=timer))

    # Log and metrics.

    def _follow_log(self) -> None:
        if self.record is not None and self.host.is_up and not self._tasks.running("log"):
            self._tasks.start("log", self.log.follow(self.host.link, self.id, self.machine))

    def _heard(self, heard: list[LogEvent]) -> None:
        opened = any(
            isinstance(event, LogReady)
            or (isinstance(event, PhaseEntered) and event.phase is Phase.HTTP_OPEN)
            for event in heard
        )
        if opened and self.machine.state is ServerState.STARTING:
            # The log tells first: ask now instead of at the next poll.
            self._tasks.start("health", self._health.poll(0.0))
        if any(isinstance(event, FaultSeen) and event.cause == "port-in-use" for event in heard):
            self.feed(events.PortTaken())
            self._tasks.start("stranger", self._name_stranger())
        self.changed()

    async def _name_stranger(self) -> None:
        with suppress(HostError):
            self.seen.stranger = await self._health.name_stranger()
            self.changed()

    async def _follow_metrics(self) -> None:
        await follow_metrics(self.http, self.engine, self.meter, self._clock, self._metrics_seen)

    def _metrics_seen(self, moved: bool) -> None:  # noqa: FBT001 -- called by follow_metrics only
        if moved:
            self.seen.counters_moved_at = self._clock.monotonic()
            self.feed(events.CountersMoved())
        self.changed()

    async def _look_for(self, there: Callable[[], Awaitable[bool]]) -> None:
        async for event in foreign_events(there, self._clock):
            self.feed(event)

    async def _after_stop(self) -> None:
        try:
            await run_hooks(self.host.link, self.profile, self.profile.hooks.after_stop)
        except EaglemonError as error:
            self.preflight_notes.append(f"after_stop: {error.message}")
        self.changed()
