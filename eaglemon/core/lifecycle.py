"""A server's life as a pure machine: events in, commands out; no clock, no I/O.

``ServerMachine.handle(event)`` applies the rule for its state and the event's type and returns
commands; the runner (``eaglemon/app/keeper.py``) carries each out and feeds its result back as
the next event. Timers are commands, so years pass in microseconds in tests. A pair of state and
event without a rule changes nothing: late answers of cancelled work are normal.

Losing the link is ``lost``, never ``failed``: the machine keeps what it knew, and the host's own
account of the run decides when the link is back.
"""

from eaglemon.core.lifecycle_events import (
    ClearTimer,
    Command,
    LaunchAsked,
    LinkLost,
    MemoryBack,
    MemoryUnseen,
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
    WatchMemory,
)
from eaglemon.core.lifecycle_health import UNHEALTHY_AFTER
from eaglemon.core.release import gone_unseen
from eaglemon.core.runs import all_gone, was_stopped
from eaglemon.core.server_machine import RULES, RUNNING, ServerMachine, on
from eaglemon.core.views import ServerState

__all__ = ["NOT_STARTED", "RULES", "UNHEALTHY_AFTER", "ServerMachine"]

NOT_STARTED = "it was stopped before it was started"


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
    if machine.stop_wanted_s is not None:
        return _stop(machine, StopAsked(grace_s=machine.stop_wanted_s))
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


@on(StatusSeen, *RUNNING, ServerState.STOPPING)
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


@on(StatusSeen, ServerState.RELEASING, ServerState.STOPPED)
def _account(machine: ServerMachine, event: StatusSeen) -> list[Command]:
    # An exit is seen before the host has written that the last process is gone.
    machine.exit, machine.stop = event.exit or machine.exit, event.stop or machine.stop
    return []


@on(StatusSeen, ServerState.FAILED)
def _late_end(machine: ServerMachine, event: StatusSeen) -> list[Command]:
    # How it ended may be written late, as after a full disk.
    machine.exit = event.exit or machine.exit
    return []


@on(StatusSeen, ServerState.LOST)
def _link_back(machine: ServerMachine, event: StatusSeen) -> list[Command]:
    early = {ServerState.SPAWNING, ServerState.WARMING}
    before = ServerState.STARTING if machine.before_loss in early else machine.before_loss
    machine.enter(before)
    machine.bad_polls = 0
    if before is ServerState.RELEASING:
        return _release(machine)
    commands = _resume(machine, event)
    if machine.stop_wanted_s is not None and machine.state in RUNNING:
        return _stop(machine, StopAsked(grace_s=machine.stop_wanted_s))
    return commands


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
        # One that is found old has had its time, but is asked before it is judged.
        left_s = max(machine.limits.ready_s - event.age_s, machine.limits.hung_s)
        after_s = min(machine.limits.ready_s, left_s)
        commands.append(SetTimer(timer=Timer.READY, after_s=after_s))
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


# Stop.


@on(StopAsked, ServerState.PREFLIGHT)
def _stop_before(machine: ServerMachine, event: StopAsked) -> list[Command]:
    del event
    machine.enter(ServerState.FAILED, NOT_STARTED)
    return []


@on(StopAsked, ServerState.SPAWNING)
def _stop_spawning(machine: ServerMachine, event: StopAsked) -> list[Command]:
    # The host is at it: what is not yet there cannot be stopped, and is as soon as it is.
    machine.stop_wanted_s = event.grace_s
    machine.detail = "is stopped as soon as the host has started it"
    return []


@on(StopAsked, *RUNNING, ServerState.STOPPING, ServerState.FAILED)
def _stop(machine: ServerMachine, event: StopAsked) -> list[Command]:
    machine.stop_wanted_s = None
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


@on(MemoryUnseen, ServerState.RELEASING)
def _memory_unseen(machine: ServerMachine, event: MemoryUnseen) -> list[Command]:
    machine.release_proven = event.no_driver
    machine.memory_unseen = event.reason
    machine.enter(ServerState.STOPPED, gone_unseen(event.reason))
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


@on(LinkLost, ServerState.SPAWNING, *RUNNING, ServerState.STOPPING, ServerState.RELEASING)
def _link_lost(machine: ServerMachine, event: LinkLost) -> list[Command]:
    machine.before_loss = machine.state
    machine.enter(ServerState.LOST, event.reason)
    return [StopPolling()]
