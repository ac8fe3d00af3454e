"""The course of an experiment, event by event."""

import pytest

from eaglemon.core import experiment_events as ev
from eaglemon.core.experiment import Leg, StopRules, legs_of
from eaglemon.core.experiment_machine import TRIES, ExperimentMachine, State

LEGS = legs_of(["A", "B"], 2)


def machine(**options: object) -> ExperimentMachine:
    options.setdefault("stop", StopRules())
    return ExperimentMachine(LEGS, **options)  # type: ignore[arg-type]


def play(course: ExperimentMachine, *, broken: tuple[int, ...] = ()) -> list[ev.Command]:
    """Answer every command well, but let the servers of ``broken`` fail to start."""
    told: list[ev.Command] = []
    todo: list[ev.Command] = course.handle(ev.Begun())
    while todo:
        command = todo.pop(0)
        told.append(command)
        match command:
            case ev.FindServer():
                todo += course.handle(ev.RoomMade())
            case ev.StartServer(arm=arm):
                event = ev.StartFailed("no memory") if arm in broken else ev.ServerUp(f"s{arm}")
                todo += course.handle(event)
            case ev.Measure():
                todo += course.handle(ev.Measured(elapsed_s=1.0))
            case ev.Look():
                todo += course.handle(ev.LookedAt(narrow=False))
            case ev.Clear():
                todo += course.handle(ev.Cleared())
            case ev.Restore():
                todo += course.handle(ev.Restored())
            case _:
                pass
    return told


def measured(told: list[ev.Command]) -> list[Leg]:
    return [command.leg for command in told if isinstance(command, ev.Measure)]


def test_all_legs_are_measured_in_order_then_it_clears_and_ends() -> None:
    told = play(machine())
    assert measured(told) == list(LEGS)
    assert told[-2:] == [ev.Clear(), ev.Finish("done")]


def test_a_failing_arm_is_noted_and_the_rest_goes_on() -> None:
    told = play(machine(), broken=(1,))
    assert ev.NoteFailure(1, "no memory") in told
    assert measured(told) == [Leg(arm=0, round=0), Leg(arm=0, round=1)]
    assert told[-1] == ev.Finish("done")
    assert sum(isinstance(one, ev.StartServer) and one.arm == 1 for one in told) == 1


def test_a_hopeless_arm_is_given_up_not_failed_and_measured_no_further() -> None:
    course = machine(look_often=True)
    course.handle(ev.Begun())
    course.handle(ev.ServerUp("a"))
    course.handle(ev.Measured(elapsed_s=1.0))
    told = course.handle(ev.LookedAt(narrow=False, hopeless=((1, "at most 0.80 x A"),)))
    assert told == [ev.NoteGivenUp(1, "at most 0.80 x A"), ev.FindServer(0)]
    assert (course.failed, course.given_up) == ({}, {1: "at most 0.80 x A"})
    course.handle(ev.ServerUp("a"))
    # Both measurements of arm 0 are made: there is nothing left of it to give up.
    assert course.handle(ev.Measured(elapsed_s=2.0)) == [ev.Look()]
    late = course.handle(ev.LookedAt(narrow=False, hopeless=((0, "at most 0.90 x B"),)))
    assert late == [ev.Clear()]
    assert (course.outcome, list(course.given_up)) == ("done", [1])


def test_a_resumed_experiment_does_not_measure_what_was_given_up() -> None:
    told = play(machine(done=LEGS[:2], given_up={1: "at most 0.80 x A"}))
    assert {leg.arm for leg in measured(told)} == {0}
    assert told[-1] == ev.Finish("done")


def test_all_arms_failing_is_a_failure() -> None:
    assert play(machine(), broken=(0, 1))[-1] == ev.Finish("failed")


def test_a_running_server_is_measured_without_a_start() -> None:
    course = machine()
    course.handle(ev.Begun())
    assert course.handle(ev.ServerUp("there")) == [ev.Measure(LEGS[0], "there")]


def test_keep_leaves_the_servers_and_restore_brings_back_what_was_there() -> None:
    kept = play(machine(keep=True, restore=True))
    assert ev.Clear() not in kept
    assert kept[-2:] == [ev.Restore(), ev.Finish("done")]


def test_it_goes_on_where_a_killed_console_was() -> None:
    told = play(machine(done=LEGS[:2], failed={0: "gone"}))
    assert measured(told) == [LEGS[2]]
    assert told[0] == ev.FindServer(1)


@pytest.mark.parametrize("narrow", [True, False])
def test_it_looks_after_each_round_and_ends_early_by_repeats_only(narrow: bool) -> None:
    course = ExperimentMachine(legs_of(["A", "B"], 3), stop=StopRules())
    course.handle(ev.Begun())
    looks = []
    for number in range(4):
        course.handle(ev.ServerUp("s"))
        answer = course.handle(ev.Measured(elapsed_s=1.0))
        looks.append(answer == [ev.Look()])
        if number == 1:
            assert course.handle(ev.LookedAt(narrow=True)) == [ev.FindServer(1)]
        assert number == 3 or course.state is State.MAKING_ROOM
    assert looks == [False, True, False, True]
    answer = course.handle(ev.LookedAt(narrow=narrow))
    assert answer == ([ev.Clear()] if narrow else [ev.FindServer(0)])
    assert course.outcome == ("narrow" if narrow else "")


def test_it_looks_after_the_last_round_too_which_ends_nothing_early() -> None:
    course = machine()
    looks = [command for command in play(course) if isinstance(command, ev.Look)]
    assert len(looks) == 2
    last = machine(done=LEGS[:3])
    last.handle(ev.Begun())
    last.handle(ev.ServerUp("s"))
    assert last.handle(ev.Measured(elapsed_s=1.0)) == [ev.Look()]
    assert last.handle(ev.LookedAt(narrow=True)) == [ev.Clear()]
    assert last.outcome == "done"


def test_time_is_up_between_legs_only() -> None:
    course = machine(stop=StopRules(limit_s=10.0))
    course.handle(ev.Begun())
    course.handle(ev.ServerUp("s"))
    assert course.handle(ev.Measured(elapsed_s=9.0)) == [ev.FindServer(1)]
    course.handle(ev.ServerUp("s"))
    assert course.handle(ev.Measured(elapsed_s=10.0)) == [ev.Clear()]
    assert course.outcome == "time-up"


def test_a_lost_host_is_waited_for_and_the_leg_done_again() -> None:
    course = machine()
    course.handle(ev.Begun())
    course.handle(ev.ServerUp("s"))
    assert course.handle(ev.HostAway("cut")) == [ev.AwaitHost(0)]
    assert course.state is State.AWAY
    assert course.handle(ev.HostBack()) == [ev.FindServer(0)]
    for _ in range(TRIES - 2):
        course.handle(ev.HostAway("cut"))
        course.handle(ev.HostBack())
    assert ev.NoteFailure(0, "cut") in course.handle(ev.HostAway("cut"))


@pytest.mark.parametrize("steps", range(4))
def test_cancelling_clears_from_every_state(steps: int) -> None:
    course = machine(keep=True)
    for event in (ev.Begun(), ev.RoomMade(), ev.ServerUp("s"), ev.HostAway("cut"))[:steps]:
        course.handle(event)
    assert course.handle(ev.CancelAsked()) == [ev.Clear()]
    assert course.handle(ev.Measured(elapsed_s=1.0)) == []
    assert course.handle(ev.Cleared()) == [ev.Finish("cancelled")]
    assert course.handle(ev.CancelAsked()) == []
