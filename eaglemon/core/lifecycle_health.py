"""The rules of a server's health: when it is warm, ready, busy, hung."""

from eaglemon.core.lifecycle_events import (
    AskToken,
    ClearTimer,
    Command,
    CountersMoved,
    Generated,
    GenerationStuck,
    HealthSeen,
    PollHealth,
    Timer,
    TokenFailed,
    TokenSeen,
)
from eaglemon.core.server_machine import ServerMachine, on
from eaglemon.core.views import HealthVerdict, ServerState

UNHEALTHY_AFTER = 2
"""Bad polls in a row before a ready server is called unhealthy: one may be a hiccup."""
TOKEN_RETRY_S = 1.0
BACK_OFF = 1.3
BUSY_POLL_S = 3.0


@on(HealthSeen, ServerState.STARTING)
def _health_starting(machine: ServerMachine, event: HealthSeen) -> list[Command]:
    if event.verdict is HealthVerdict.OK:
        machine.enter(ServerState.WARMING)
        return [AskToken(after_s=0.0)]
    if event.ready_once and event.verdict is not HealthVerdict.UNKNOWN:
        machine.bad_polls += 1
        if machine.bad_polls < UNHEALTHY_AFTER:
            return [PollHealth(after_s=TOKEN_RETRY_S)]
        # Found by a later console: it is past its start, and ill.
        machine.was_ready = True
        machine.enter(ServerState.UNHEALTHY, f"health: {event.verdict.value}")
        return [PollHealth(after_s=_busy_pause_s(machine))]
    if event.verdict is HealthVerdict.TIMED_OUT and event.silent_s >= machine.limits.hung_s:
        machine.silent = True
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
        machine.silent = False
        rule = _health_ready if machine.was_ready else _health_starting
        return rule(machine, event)
    if machine.silent and event.verdict not in {HealthVerdict.TIMED_OUT, HealthVerdict.UNKNOWN}:
        machine.silent = False
        machine.enter(ServerState.STARTING)
        return _health_starting(machine, event)
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
