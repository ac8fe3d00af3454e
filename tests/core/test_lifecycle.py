"""The server machine: the main job's paths, and invariants under any order of events."""

from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.lifecycle import NOT_STARTED, RULES, UNHEALTHY_AFTER, ServerMachine
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
from eaglemon.core.lifecycle_health import TOKEN_RETRY_S
from eaglemon.core.profiles import Limits
from eaglemon.core.runs import RunExit, RunStop
from eaglemon.core.views import HealthVerdict, ServerState

LIVING = StatusSeen(living=3)
STOP = RunStop(requested_at=100.0, grace_s=5.0, term_sent_at=100.0, term_count=3)
GONE = RunStop(requested_at=100.0, grace_s=5.0, term_sent_at=100.0, term_count=3, gone_at=101.0)


def machine_after(*events: Event) -> ServerMachine:
    machine = ServerMachine(Limits())
    for event in events:
        machine.handle(event)
    return machine


def state(machine: ServerMachine) -> ServerState:
    """Read the state afresh: a type checker takes an attribute for unchanged."""
    return machine.state


TO_STARTING: tuple[Event, ...] = (LaunchAsked(), PreflightPassed(), Spawned(pid=7))
TO_READY: tuple[Event, ...] = (*TO_STARTING, HealthSeen(verdict=HealthVerdict.OK), TokenSeen())


def test_launch_to_ready_asks_for_each_step_in_turn() -> None:
    machine = ServerMachine(Limits(ready_s=900.0))

    assert machine.handle(LaunchAsked()) == [RunPreflight()]
    assert machine.handle(PreflightPassed()) == [Spawn()]
    assert machine.handle(Spawned(pid=7)) == [
        SetTimer(timer=Timer.READY, after_s=900.0),
        PollHealth(after_s=machine.limits.health_interval_s),
    ]
    assert machine.handle(HealthSeen(verdict=HealthVerdict.STARTING)) == [
        PollHealth(after_s=machine.limits.health_interval_s)
    ]
    assert machine.handle(HealthSeen(verdict=HealthVerdict.OK)) == [AskToken(after_s=0.0)]
    assert state(machine) is ServerState.WARMING
    assert machine.handle(TokenSeen()) == [
        ClearTimer(timer=Timer.READY),
        PollHealth(after_s=machine.limits.ready_interval_s),
    ]
    assert state(machine) is ServerState.READY


def test_health_200_alone_is_not_ready() -> None:
    machine = machine_after(*TO_STARTING, HealthSeen(verdict=HealthVerdict.OK))
    machine.handle(TokenFailed(reason="HTTP 500"))

    assert state(machine) is ServerState.WARMING
    assert machine.detail == "HTTP 500"

    machine.handle(StatusSeen(living=0, exit=RunExit(code=0, at=5.0)))
    assert state(machine) is ServerState.FAILED


def test_preflight_problems_start_nothing() -> None:
    machine = machine_after(LaunchAsked(), PreflightFailed(reason="port 30000: in use"))

    assert state(machine) is ServerState.FAILED
    assert machine.detail == "port 30000: in use"


def test_exit_before_ready_is_failed_at_once_even_with_workers_left() -> None:
    machine = machine_after(*TO_STARTING)

    commands = machine.handle(StatusSeen(living=2, exit=RunExit(signal="SIGKILL", at=4.0)))

    assert state(machine) is ServerState.FAILED
    assert StopPolling() in commands


def test_exit_zero_nobody_asked_for_is_failed() -> None:
    machine = machine_after(*TO_READY)
    machine.handle(StatusSeen(living=0, exit=RunExit(code=0, at=4.0)))

    assert state(machine) is ServerState.FAILED


def test_stop_is_proven_by_processes_and_memory() -> None:
    machine = machine_after(*TO_READY)

    assert StopRun(grace_s=5.0) in machine.handle(StopAsked(grace_s=5.0))
    machine.handle(StatusSeen(living=1, stop=STOP))
    assert state(machine) is ServerState.STOPPING
    commands = machine.handle(StatusSeen(living=0, exit=RunExit(code=0, at=101.0), stop=GONE))
    assert state(machine) is ServerState.RELEASING
    assert WatchMemory() in commands
    machine.handle(MemoryBack())

    assert state(machine) is ServerState.STOPPED
    assert machine.release_proven


def test_memory_that_stays_is_said_not_hidden() -> None:
    machine = machine_after(
        *TO_READY,
        StopAsked(grace_s=5.0),
        StatusSeen(living=0, exit=RunExit(code=0, at=101.0), stop=GONE),
        TimerFired(timer=Timer.RELEASE),
    )

    assert state(machine) is ServerState.STOPPED
    assert not machine.release_proven
    assert "not back" in machine.detail


def test_survivors_of_kill_are_named() -> None:
    left = RunStop(requested_at=1.0, grace_s=1.0, left=(41, 42))
    machine = machine_after(*TO_READY, StopAsked(grace_s=1.0), StatusSeen(living=2, stop=left))

    assert state(machine) is ServerState.UNHEALTHY
    assert "41, 42" in machine.detail


def test_leader_that_exits_before_the_account_is_written_is_stopped_not_failed() -> None:
    machine = machine_after(*TO_READY, StopAsked(grace_s=5.0))
    machine.handle(StatusSeen(living=0, exit=RunExit(signal="SIGTERM", at=100.0)))

    assert state(machine) is ServerState.RELEASING


def test_a_stop_by_another_console_is_followed() -> None:
    machine = machine_after(*TO_READY, StatusSeen(living=3, stop=STOP))

    assert state(machine) is ServerState.STOPPING


def test_lost_link_is_not_failure_and_ready_comes_back() -> None:
    machine = machine_after(*TO_READY, LinkLost(reason="cut"))
    assert state(machine) is ServerState.LOST

    commands = machine.handle(LIVING)

    assert state(machine) is ServerState.READY
    assert commands == [PollHealth(after_s=0.0)]


def test_lost_while_starting_keeps_a_limit_for_ready() -> None:
    machine = machine_after(*TO_STARTING, LinkLost(reason="cut"))

    commands = machine.handle(LIVING)

    assert state(machine) is ServerState.STARTING
    assert SetTimer(timer=Timer.READY, after_s=machine.limits.ready_s) in commands


def test_exit_while_the_link_was_down_is_told_when_it_is_back() -> None:
    machine = machine_after(*TO_READY, LinkLost(reason="cut"))
    machine.handle(StatusSeen(living=0, exit=RunExit(code=1, at=9.0)))

    assert state(machine) is ServerState.FAILED


def test_how_a_server_ended_may_be_told_late() -> None:
    machine = machine_after(*TO_READY)
    machine.handle(StatusSeen(living=0, exit=RunExit(reason="how it ended cannot be written")))
    machine.handle(StatusSeen(living=0, exit=RunExit(code=1, at=9.0)))

    assert state(machine) is ServerState.FAILED
    assert machine.exit == RunExit(code=1, at=9.0)


def test_launch_that_never_arrived_is_told() -> None:
    machine = machine_after(LaunchAsked(), PreflightPassed(), LinkLost(reason="cut"), RunMissing())

    assert state(machine) is ServerState.FAILED
    assert "never arrived" in machine.detail


def test_one_late_answer_is_no_illness_and_moving_counters_are_life() -> None:
    machine = machine_after(*TO_READY)
    for _ in range(UNHEALTHY_AFTER - 1):
        machine.handle(HealthSeen(verdict=HealthVerdict.TIMED_OUT))
    assert state(machine) is ServerState.READY

    machine.handle(HealthSeen(verdict=HealthVerdict.TIMED_OUT))
    assert state(machine) is ServerState.UNHEALTHY
    machine.handle(CountersMoved())
    assert state(machine) is ServerState.BUSY
    machine.handle(HealthSeen(verdict=HealthVerdict.OK))
    assert state(machine) is ServerState.READY


def test_answers_that_cannot_arrive_tell_nothing_of_a_server() -> None:
    machine = ServerMachine(Limits())
    for event in (LIVING, HealthSeen(verdict=HealthVerdict.OK), TokenSeen()):
        machine.handle(event)
    for _ in range(2 * UNHEALTHY_AFTER):
        (poll,) = machine.handle(HealthSeen(verdict=HealthVerdict.UNKNOWN))
        assert isinstance(poll, PollHealth)
    assert state(machine) is ServerState.READY
    for _ in range(UNHEALTHY_AFTER):
        machine.handle(HealthSeen(verdict=HealthVerdict.TIMED_OUT))
    machine.handle(HealthSeen(verdict=HealthVerdict.UNKNOWN))
    assert state(machine) is ServerState.UNHEALTHY
    assert machine.detail == "health: timed-out"


def test_a_hang_outlasts_a_health_path_that_does_not_generate() -> None:
    machine = machine_after(*TO_READY, GenerationStuck(reason="hung: x"))
    assert state(machine) is ServerState.UNHEALTHY

    machine.handle(HealthSeen(verdict=HealthVerdict.OK, generated=False))
    assert state(machine) is ServerState.UNHEALTHY
    assert machine.detail == "hung: x"

    machine.handle(Generated())
    assert state(machine) is ServerState.READY


def test_counters_that_move_keep_a_late_server_from_being_unhealthy() -> None:
    machine = machine_after(*TO_READY)
    for _ in range(3 * UNHEALTHY_AFTER):
        machine.handle(HealthSeen(verdict=HealthVerdict.TIMED_OUT))
        machine.handle(CountersMoved())
        assert state(machine) is ServerState.BUSY


def test_polls_of_a_closed_port_back_off_and_those_of_an_open_one_do_not() -> None:
    machine = machine_after(*TO_STARTING)
    limits = machine.limits
    pauses = []
    for _ in range(12):
        (command,) = machine.handle(HealthSeen(verdict=HealthVerdict.REFUSED))
        assert isinstance(command, PollHealth)
        pauses.append(command.after_s)
    assert pauses == sorted(pauses)
    assert pauses[0] == limits.health_interval_s
    assert pauses[-1] == limits.health_most_s

    opened = machine.handle(HealthSeen(verdict=HealthVerdict.STARTING))
    assert opened == [PollHealth(after_s=limits.health_interval_s)]


def test_a_small_hang_limit_asks_a_ready_server_more_often() -> None:
    machine = ServerMachine(Limits(hung_s=8.0))
    for event in (*TO_STARTING, HealthSeen(verdict=HealthVerdict.OK)):
        machine.handle(event)
    assert PollHealth(after_s=2.0) in machine.handle(TokenSeen())


def test_ready_limit_is_told_and_the_server_is_left_alone() -> None:
    machine = machine_after(*TO_STARTING, TimerFired(timer=Timer.READY))
    assert state(machine) is ServerState.UNHEALTHY

    machine.handle(HealthSeen(verdict=HealthVerdict.OK))
    assert state(machine) is ServerState.WARMING


def test_history_is_adopted_without_work() -> None:
    failed, stopped = ServerMachine(Limits()), ServerMachine(Limits())

    assert failed.handle(StatusSeen(living=0, exit=RunExit(code=1, at=5.0))) == []
    assert stopped.handle(StatusSeen(living=0, exit=RunExit(code=0, at=101.0), stop=GONE)) == []

    assert state(failed) is ServerState.FAILED
    assert state(stopped) is ServerState.STOPPED


def test_a_found_server_that_was_ready_once_is_ill_not_starting() -> None:
    machine = ServerMachine(Limits())
    machine.handle(LIVING)
    ill = HealthSeen(verdict=HealthVerdict.TIMED_OUT, ready_once=True)
    # One poll may be a hiccup, or cut off together with the link.
    assert machine.handle(ill) == [PollHealth(after_s=TOKEN_RETRY_S)]
    assert state(machine) is ServerState.STARTING
    machine.handle(ill)

    assert state(machine) is ServerState.UNHEALTHY
    machine.handle(HealthSeen(verdict=HealthVerdict.OK))
    assert state(machine) is ServerState.READY


def test_stop_after_a_crash_does_not_hide_the_crash() -> None:
    machine = ServerMachine(Limits())
    machine.handle(StatusSeen(living=0, exit=RunExit(code=1, at=50.0), stop=GONE))

    assert state(machine) is ServerState.FAILED


def test_a_stop_before_the_first_process_is_not_forgotten() -> None:
    early = machine_after(LaunchAsked(), StopAsked(grace_s=2.0))
    assert state(early) is ServerState.FAILED
    assert early.detail == NOT_STARTED
    assert early.handle(PreflightPassed()) == []

    late = machine_after(LaunchAsked(), PreflightPassed(), StopAsked(grace_s=2.0))
    assert state(late) is ServerState.SPAWNING
    assert StopRun(grace_s=2.0) in late.handle(Spawned(pid=7))
    assert state(late) is ServerState.STOPPING

    cut = machine_after(
        LaunchAsked(), PreflightPassed(), StopAsked(grace_s=2.0), LinkLost(reason="cut")
    )
    assert StopRun(grace_s=2.0) in cut.handle(LIVING)
    assert state(cut) is ServerState.STOPPING
    # Asked once: a stop that failed is not repeated by itself.
    cut.handle(StopFailed(reason="no"))
    cut.handle(LinkLost(reason="cut"))
    assert StopRun(grace_s=2.0) not in cut.handle(LIVING)


def test_a_taken_port_is_failure_although_the_process_lives_and_it_can_be_stopped() -> None:
    machine = machine_after(*TO_STARTING, PortTaken())
    assert state(machine) is ServerState.FAILED

    assert StopRun(grace_s=2.0) in machine.handle(StopAsked(grace_s=2.0))


_exits = st.sampled_from([None, RunExit(code=0, at=120.0), RunExit(signal="SIGKILL", at=50.0)])
_stops = st.sampled_from([None, STOP, GONE, RunStop(requested_at=1.0, grace_s=1.0, left=(9,))])
_events: st.SearchStrategy[Event] = st.one_of(
    st.sampled_from(
        [
            LaunchAsked(),
            PreflightPassed(),
            PreflightFailed(reason="no"),
            Spawned(pid=3),
            SpawnFailed(reason="no"),
            RunMissing(),
            PortTaken(),
            TokenSeen(),
            TokenFailed(reason="no"),
            CountersMoved(),
            GenerationStuck(reason="no"),
            Generated(),
            StopAsked(grace_s=1.0),
            StopFailed(reason="no"),
            MemoryBack(),
            LinkLost(reason="cut"),
            TimerFired(timer=Timer.READY),
            TimerFired(timer=Timer.RELEASE),
        ]
    ),
    st.builds(HealthSeen, verdict=st.sampled_from(list(HealthVerdict)), generated=st.booleans()),
    st.builds(StatusSeen, living=st.integers(0, 3), exit=_exits, stop=_stops),
)


@given(st.lists(_events, max_size=40))
def test_any_order_of_events_keeps_the_invariants(events: list[Event]) -> None:
    machine = ServerMachine(Limits())
    token_seen = False
    for event in events:
        before = machine.state
        commands = machine.handle(event)
        token_seen = token_seen or (before is ServerState.WARMING and event == TokenSeen())
        if machine.state.answering:
            assert token_seen
        if before is ServerState.STOPPED:
            assert state(machine) is ServerState.STOPPED
            assert commands == []
        if before is ServerState.STOPPING:
            assert not machine.state.answering
        if isinstance(event, LinkLost):
            assert state(machine) is not ServerState.FAILED or before is ServerState.FAILED
        assert len(_names(commands)) == len(set(_names(commands)))


@given(st.lists(_events, max_size=25))
def test_every_living_server_can_be_stopped(events: list[Event]) -> None:
    machine = machine_after(*TO_STARTING, *events)
    if machine.state is ServerState.LOST:
        machine.handle(LIVING)
    machine.handle(StopAsked(grace_s=1.0))
    machine.handle(StatusSeen(living=0, exit=RunExit(code=0, at=120.0), stop=GONE))
    machine.handle(MemoryBack())

    assert machine.state in {ServerState.STOPPED, ServerState.FAILED}


def test_every_rule_is_reached_by_an_event_of_its_type() -> None:
    for (state, kind), rule in RULES.items():
        assert isinstance(state, ServerState)
        assert callable(rule)
        assert kind.__module__ == "eaglemon.core.lifecycle_events"


def _names(commands: list[Command]) -> list[str]:
    return [
        f"{type(command).__name__} {getattr(command, 'timer', '')}"
        for command in commands
        if isinstance(command, SetTimer | PollHealth | AskToken | Spawn | StopRun)
    ]
