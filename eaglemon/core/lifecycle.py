"""A server's life as a pure machine: events in, commands out; no clock, no I/O.

``ServerMachine.handle(event)`` applies the rule for its state and the event's type and returns
commands; the runner (``eaglemon/app/keeper.py``) carries each out and feeds its result back as
the next event. Timers are commands, so years pass in microseconds in tests. A pair of state and
event without a rule changes nothing: late answers of cancelled work are normal.

Losing the link is ``lost``, never ``failed``: the machine keeps what it knew, and the host's own
account of the run decides when the link is back.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from eaglemon.core.lifecycle_events import (
    AskToken,
    ClearTimer,
    Command,
    CountersMoved,
    Event,
    Generated,
    GenerationStuck,
    HealthSeen,
    LaunchAsked,
    LinkLost,
    MemoryBack,
    PollHealth,
    PortTaken,
    PreflightFailed,
    PreflightPassed,
    RunMissing,
    RunPreflight,
    SetTimer,
    Spawn,
    Spawned,
    SpawnFailed,
    StatusSeen,
    StopAsked,
    StopFailed,
    StopPolling,
    StopRun,
    Timer,
    TimerFired,
    TokenFailed,
    TokenSeen,
    WatchMemory,
)
from eaglemon.core.profiles import Limits
from eaglemon.core.runs import RunExit, RunStop, all_gone, was_stopped
from eaglemon.core.views import HealthVerdict, ServerState

UNHEALTHY_AFTER = 2
"""Bad polls in a row before a ready server is called unhealthy: one may be a hiccup."""
TOKEN_RETRY_S = 1.0
BACK_OFF = 1.3
BUSY_POLL_S = 3.0


class ServerMachine:
    """The life of one server; anybody may read its attributes, only rules write them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.state = ServerState.PREFLIGHT
        self.detail = ""
        """Why it is in this state, in words, where the state does not say it."""
        self.exit: RunExit | None = None
        self.stop: RunStop | None = None
        self.was_ready = False
        self.release_proven = False
        """The GPU memory was seen to be back after the stop."""
        self.bad_polls = 0
        self.hung = False
        """It was seen not to generate; only a generation takes that back."""
        self.pause_s = limits.health_interval_s
        """Until the next poll of a start."""
        self.before_loss = ServerState.STARTING
        self.story: list[tuple[ServerState, str, ServerState]] = []
        """Every change of state with the event that caused it."""

    def handle(self, event: Event) -> list[Command]:
        """Take one event and return what to do now."""
        rule = RULES.get((self.state, type(event)))
        if rule is None:
            return []
        before = self.state
        commands = rule(self, event)
        if self.state is not before:
            self.story.append((before, type(event).__name__, self.state))
        return commands

    def enter(self, state: ServerState, detail: str = "") -> None:
        """Change to ``state``."""
        self.state = state
        self.detail = detail


_E = TypeVar("_E", bound=Event)
Rule: TypeAlias = Callable[[ServerMachine, _E], list[Command]]
RULES: dict[tuple[ServerState, type[object]], Rule[Any]] = {}
"""Every pair of state and event that means something; filled by ``on`` below."""
_RUNNING = (
    ServerState.STARTING,
    ServerState.WARMING,
    ServerState.READY,
    ServerState.BUSY,
    ServerState.UNHEALTHY,
)
"""The states in which the server's processes are expected to live."""


def on(event: type[_E], *states: ServerState) -> Callable[[Rule[_E]], Rule[_E]]:
    """Register a rule for ``event`` in each of ``states``."""

    def register(rule: Rule[_E]) -> Rule[_E]:
        for state in states:
            RULES[state, event] = rule
        return rule

    return register


# Launch.


@on(LaunchAsked, ServerState.PREFLIGHT)
def _launch(machine: ServerMachine, event: LaunchAsked) -> list[Command]:
    del machine, event
    return [RunPreflight()]


@on(PreflightPassed, ServerState.PREFLIGHT)
def _preflight_passed(machine: ServerMachine, event: PreflightPassed) -> list[Command]:
    del event
    machine.enter(ServerState.SPAWNING)
    return [Spawn()]


@on(PreflightFailed, ServerState.PREFLIGHT)
def _preflight_failed(machine: ServerMachine, event: PreflightFailed) -> list[Command]:
    machine.enter(ServerState.FAILED, event.reason)
    return []


@on(SpawnFailed, ServerState.SPAWNING)
def _spawn_failed(machine: ServerMachine, event: SpawnFailed) -> list[Command]:
    machine.enter(ServerState.FAILED, event.reason)
    return []


@on(Spawned, ServerState.SPAWNING)
def _spawned(machine: ServerMachine, event: Spawned) -> list[Command]:
    del event
    machine.enter(ServerState.STARTING)
    return [
        SetTimer(timer=Timer.READY, after_s=machine.limits.ready_s),
        PollHealth(after_s=machine.limits.health_interval_s),
    ]


# The host's account of the run.


@on(StatusSeen, ServerState.PREFLIGHT)
def _adopted(machine: ServerMachine, event: StatusSeen) -> list[Command]:
    if event.living == 0 and event.exit is not None:
        # History: whether its memory came back is no longer this run's question.
        machine.exit, machine.stop = event.exit, event.stop
        stopped = was_stopped(event.exit, event.stop)
        machine.enter(ServerState.STOPPED if stopped else ServerState.FAILED)
        return []
    machine.enter(ServerState.STARTING)
    return _resume(machine, event)


@on(StatusSeen, *_RUNNING, ServerState.STOPPING)
def _status(machine: ServerMachine, event: StatusSeen) -> list[Command]:
    machine.exit, machine.stop = event.exit, event.stop
    stopping = machine.state is ServerState.STOPPING
    if stopping and event.stop is not None and event.stop.left:
        pids = ", ".join(str(pid) for pid in event.stop.left)
        machine.enter(ServerState.UNHEALTHY, f"processes survived KILL: {pids}")
        return _settle()
    if event.living == 0 and (event.exit is not None or all_gone(event.stop)):
        if stopping or was_stopped(event.exit, event.stop):
            return _release(machine)
        machine.enter(ServerState.FAILED)
        return _settle()
    if event.exit is not None and not stopping:
        # The leader is dead though workers may live on: failed, and told at once.
        machine.enter(ServerState.FAILED)
        return _settle()
    if event.stop is not None and not stopping and not event.stop.left:
        # Another console, or this one before a restart, asked for the stop.
        machine.enter(ServerState.STOPPING)
        return [StopPolling(), ClearTimer(timer=Timer.READY)]
    return []


@on(StatusSeen, ServerState.LOST)
def _link_back(machine: ServerMachine, event: StatusSeen) -> list[Command]:
    early = {ServerState.SPAWNING, ServerState.WARMING}
    before = ServerState.STARTING if machine.before_loss in early else machine.before_loss
    machine.enter(before)
    machine.bad_polls = 0
    if before is ServerState.RELEASING:
        return _release(machine)
    return _resume(machine, event)


@on(RunMissing, ServerState.LOST)
def _missing(machine: ServerMachine, event: RunMissing) -> list[Command]:
    del event
    machine.enter(ServerState.FAILED, "the host does not know this run: its launch never arrived")
    return _settle()


@on(PortTaken, ServerState.STARTING, ServerState.UNHEALTHY)
def _port_taken(machine: ServerMachine, event: PortTaken) -> list[Command]:
    del event
    # SGLang finds out only after loading, and lives on with all its memory: it can never serve.
    if machine.was_ready:
        return []
    machine.enter(ServerState.FAILED)
    return _settle()


def _resume(machine: ServerMachine, event: StatusSeen) -> list[Command]:
    before = machine.state
    commands = _status(machine, event)
    if machine.state is not before or before is ServerState.STOPPING:
        return commands
    if not machine.was_ready:
        commands.append(SetTimer(timer=Timer.READY, after_s=machine.limits.ready_s))
    return [*commands, PollHealth(after_s=0.0)]


def _release(machine: ServerMachine) -> list[Command]:
    machine.enter(ServerState.RELEASING)
    return [
        StopPolling(),
        ClearTimer(timer=Timer.READY),
        SetTimer(timer=Timer.RELEASE, after_s=machine.limits.release_s),
        WatchMemory(),
    ]


def _settle() -> list[Command]:
    return [StopPolling(), ClearTimer(timer=Timer.READY), ClearTimer(timer=Timer.RELEASE)]


# Health.


@on(HealthSeen, ServerState.STARTING)
def _health_starting(machine: ServerMachine, event: HealthSeen) -> list[Command]:
    if event.verdict is HealthVerdict.OK:
        machine.enter(ServerState.WARMING)
        return [AskToken(after_s=0.0)]
    if event.ready_once and event.verdict is not HealthVerdict.UNKNOWN:
        # Found by a later console: it is past its start, and ill.
        machine.was_ready = True
        machine.enter(ServerState.UNHEALTHY, f"health: {event.verdict.value}")
        return [PollHealth(after_s=_busy_pause_s(machine))]
    pause_s, least_s = machine.pause_s, machine.limits.health_interval_s
    # A closed port stays closed for minutes; an open one may turn good at any moment.
    closed = event.verdict in {HealthVerdict.REFUSED, HealthVerdict.UNKNOWN}
    most_s = max(least_s, machine.limits.health_most_s)
    machine.pause_s = min(pause_s * BACK_OFF, most_s) if closed else least_s
    return [PollHealth(after_s=pause_s if closed else least_s)]


@on(TokenSeen, ServerState.WARMING)
def _token(machine: ServerMachine, event: TokenSeen) -> list[Command]:
    del event
    machine.was_ready = True
    machine.bad_polls = 0
    machine.enter(ServerState.READY)
    return [
        ClearTimer(timer=Timer.READY),
        PollHealth(after_s=_ready_pause_s(machine)),
    ]


@on(TokenFailed, ServerState.WARMING)
def _token_failed(machine: ServerMachine, event: TokenFailed) -> list[Command]:
    machine.detail = event.reason
    return [AskToken(after_s=TOKEN_RETRY_S)]


@on(HealthSeen, ServerState.READY, ServerState.BUSY)
def _health_ready(machine: ServerMachine, event: HealthSeen) -> list[Command]:
    if event.verdict is HealthVerdict.OK:
        machine.bad_polls = 0
        machine.hung = False
        machine.enter(ServerState.READY)
        return [PollHealth(after_s=_ready_pause_s(machine))]
    machine.bad_polls += event.verdict is not HealthVerdict.UNKNOWN  # which tells nothing of it
    if machine.bad_polls >= UNHEALTHY_AFTER:
        machine.enter(ServerState.UNHEALTHY, f"health: {event.verdict.value}")
    return [PollHealth(after_s=_busy_pause_s(machine))]


@on(HealthSeen, ServerState.UNHEALTHY)
def _health_unhealthy(machine: ServerMachine, event: HealthSeen) -> list[Command]:
    if event.verdict is HealthVerdict.OK and not (machine.hung and not event.generated):
        rule = _health_ready if machine.was_ready else _health_starting
        return rule(machine, event)
    if machine.was_ready and not machine.hung and event.verdict is not HealthVerdict.UNKNOWN:
        machine.detail = f"health: {event.verdict.value}"
    return [PollHealth(after_s=_busy_pause_s(machine))]


@on(CountersMoved, ServerState.READY, ServerState.BUSY, ServerState.UNHEALTHY)
def _counters_moved(machine: ServerMachine, event: CountersMoved) -> list[Command]:
    del event
    # Counters that move prove life although health is late: busy, not unhealthy.
    late = machine.bad_polls > 0 or machine.state is ServerState.UNHEALTHY
    if machine.was_ready and late:
        machine.enter(ServerState.BUSY, "health is late, counters move")
        machine.bad_polls = 0
        machine.hung = False
    return []


@on(GenerationStuck, ServerState.READY, ServerState.BUSY, ServerState.UNHEALTHY)
def _stuck(machine: ServerMachine, event: GenerationStuck) -> list[Command]:
    if machine.was_ready:
        machine.hung = True
        machine.enter(ServerState.UNHEALTHY, event.reason)
    return []


@on(Generated, ServerState.UNHEALTHY)
def _generated(machine: ServerMachine, event: Generated) -> list[Command]:
    del event
    if machine.was_ready:
        machine.hung = False
        machine.bad_polls = 0
        machine.enter(ServerState.READY)
    return []


def _ready_pause_s(machine: ServerMachine) -> float:
    return min(machine.limits.ready_interval_s, machine.limits.hung_s / 4)


def _busy_pause_s(machine: ServerMachine) -> float:
    return min(BUSY_POLL_S, machine.limits.hung_s / 8)


# Stop.


@on(StopAsked, *_RUNNING, ServerState.STOPPING, ServerState.FAILED)
def _stop(machine: ServerMachine, event: StopAsked) -> list[Command]:
    machine.enter(ServerState.STOPPING)
    return [StopPolling(), ClearTimer(timer=Timer.READY), StopRun(grace_s=event.grace_s)]


@on(StopFailed, ServerState.STOPPING)
def _stop_failed(machine: ServerMachine, event: StopFailed) -> list[Command]:
    machine.enter(ServerState.UNHEALTHY, event.reason)
    return [PollHealth(after_s=0.0)]


@on(MemoryBack, ServerState.RELEASING)
def _memory_back(machine: ServerMachine, event: MemoryBack) -> list[Command]:
    del event
    machine.release_proven = True
    machine.enter(ServerState.STOPPED)
    return _settle()


# Time and link.


@on(TimerFired, ServerState.STARTING, ServerState.WARMING)
def _ready_too_late(machine: ServerMachine, event: TimerFired) -> list[Command]:
    if event.timer is not Timer.READY:
        return []
    limit = f"not ready after {machine.limits.ready_s:.0f} s"
    machine.enter(ServerState.UNHEALTHY, f"{limit}: {machine.detail}" if machine.detail else limit)
    return [PollHealth(after_s=machine.limits.health_interval_s)]


@on(TimerFired, ServerState.RELEASING)
def _release_too_late(machine: ServerMachine, event: TimerFired) -> list[Command]:
    if event.timer is not Timer.RELEASE:
        return []
    limit_s = machine.limits.release_s
    machine.enter(ServerState.STOPPED, f"GPU memory is not back after {limit_s:.0f} s")
    return _settle()


@on(LinkLost, ServerState.SPAWNING, *_RUNNING, ServerState.STOPPING, ServerState.RELEASING)
def _link_lost(machine: ServerMachine, event: LinkLost) -> list[Command]:
    machine.before_loss = machine.state
    machine.enter(ServerState.LOST, event.reason)
    return [StopPolling()]
