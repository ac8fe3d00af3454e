"""A/B from the console: choose, see the differences, confirm, watch, cancel; and the runs."""

import time
from dataclasses import replace

import pytest
from textual.widgets import Input

from eaglemon.core.experiment_machine import State
from eaglemon.core.problems import Problem, Severity
from eaglemon.core.stats import Interval
from eaglemon.core.views import ServerState, StopView
from eaglemon.tui.experiment_panels import course, figures_table, ratio_chart, reason_lines
from eaglemon.tui.screens.compare import CompareDialog
from eaglemon.tui.screens.experiment import ExperimentScreen
from eaglemon.tui.screens.runs import RunsScreen
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_experiments import FINDINGS, PLAN, FakeExperiments, running
from tests.tui.frame import check_frame


async def test_b_shows_the_differences_and_begins_when_told() -> None:
    fake = FakeExperiments()
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("b")
        assert isinstance(console.screen, CompareDialog)
        text = console.text()
        for part in (
            "k25-baseline differs in",
            "WILL BE STOPPED: k25-eagle3",
            "4 measurements of",
            "about 25 m 00 s",
            "differences from about 4 % can be seen",
        ):
            assert part in text
        await console.press("ctrl+s")
        assert fake.calls == [("begin", "ab-new", ["k25-eagle3", "k25-baseline"], 2)]
        assert console.app.scene().screen == "experiment"


async def test_b_takes_changes_of_b_and_refuses_what_cannot_be() -> None:
    fake = FakeExperiments()
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("b")
        console.screen.query_one("#changes", Input).value = "steps"
        await console.settle()
        assert "not a setting; write PROFILE+KEY=VALUE" in console.text()
        await console.press("ctrl+s")
        assert fake.calls == []
        console.screen.query_one("#changes", Input).value = "steps=3 topk=1"
        console.screen.query_one("#rounds", Input).value = "0"
        await console.settle()
        assert "rounds must be 1 or more" in console.text()
        console.screen.query_one("#rounds", Input).value = "3"
        await console.settle()
        await console.press("ctrl+s")
        arms = ["k25-eagle3", "k25-baseline+steps=3+topk=1"]
        assert fake.calls == [("begin", "ab-new", arms, 3)]


async def test_run_it_right_after_typing_is_not_lost() -> None:
    fake = FakeExperiments()
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("b")
        await console.pilot.press("tab", "tab", *"steps=3", "ctrl+s")
        await console.settle()
        arms = ["k25-eagle3+steps=3", "k25-baseline"]
        assert fake.calls == [("begin", "ab-new", arms, 2)]


async def test_run_it_on_what_cannot_be_says_why() -> None:
    fake = FakeExperiments()
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("b")
        await console.pilot.press("tab", "tab", *"steps", "ctrl+s")
        await console.settle()
        assert "k25-eagle3+steps: not a setting" in console.said[-1]
        assert fake.calls == []
        await console.press("ctrl+s")
        assert "k25-eagle3+steps: not a setting" in console.said[-1]


async def test_what_cannot_be_started_is_told_before_and_not_begun() -> None:
    fake = FakeExperiments()
    used = Problem(
        where="port 30000",
        message="in use on h200-a by PID 7",
        hint="stop it, or choose another port with --set port=N",
    )
    fake.refused = ((("k25-eagle3", "k25-baseline"), used),)
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("b")
        text = " ".join(console.text().replace("│", " ").split())
        assert "✗ k25-eagle3 and k25-baseline cannot be started: port 30000: in use on" in text
        assert "choose another port with port=N in its changes" in text
        await console.press("ctrl+s")
        assert fake.calls == []
        assert "cannot be started" in console.said[-1]


async def test_a_long_outlook_is_read_to_its_end_with_keys_and_messages_leave_the_buttons() -> None:
    fake = FakeExperiments()
    told = [
        Problem(where=f"flag {n}", message="is not of this release", severity=Severity.WARNING)
        for n in range(12)
    ]
    fake.warned = tuple((("k25-eagle3",), one) for one in told)
    async with opened(snapshots.FLEET, size=(80, 24), experiments=fake) as console:
        # Textual's tests have no messages by themselves.
        console.app._disable_notifications = False
        await console.press("b")
        assert "▲ k25-eagle3: flag 0: is not of this release" in console.text()
        assert "WILL BE STOPPED" not in console.text()
        await console.press("pagedown", "pagedown")
        assert "WILL BE STOPPED" in console.text()
        await console.press("pageup", "pageup")
        assert "▲ k25-eagle3: flag 0:" in console.text()
        console.app.say("something to be read")
        deadline = time.monotonic() + 60
        while "something to be read" not in console.text():
            assert time.monotonic() < deadline, console.text()
            await console.pilot.pause(0.02)
        assert "Run it  ctrl+s" in console.text()


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x50"])
async def test_compare_frames(size: str) -> None:
    width, height = map(int, size.split("x"))
    async with opened(
        snapshots.FLEET, size=(width, height), experiments=FakeExperiments()
    ) as console:
        await console.press("b")
        check_frame(console.app, f"dialog-compare-{size}")


async def test_nothing_begins_before_the_outlook_is_known() -> None:
    fake = FakeExperiments()
    fake.hang = True
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("b", "ctrl+s")
        assert "looking ahead" in console.text()
        await console.press("escape")
        assert fake.calls == []


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x50"])
async def test_experiment_frames(size: str) -> None:
    width, height = map(int, size.split("x"))
    fake = FakeExperiments(running(findings=FINDINGS, failures={}))
    async with opened(snapshots.FLEET, size=(width, height), experiments=fake) as console:
        await console.press("b")
        check_frame(console.app, f"experiment-{size}")
        if size == "80x24":
            await console.press("2")
            check_frame(console.app, f"experiment-{size}-tab2")


async def test_the_end_of_an_experiment_is_told_and_x_cancels() -> None:
    fake = FakeExperiments()
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("b", "ctrl+s", "x")
        assert fake.calls[-1] == ("cancel", "ab-new")
        await console.push(snapshots.FLEET)
        assert console.said[-1] == "experiment ab-new cancelled"
        await console.press("x")
        assert console.said[-1] == "no experiment is under way: start one with b"


async def test_an_experiment_shows_the_start_of_its_server() -> None:
    fake = FakeExperiments(running())
    async with opened(snapshots.only(snapshots.starting()), experiments=fake) as console:
        lane = fake.known["ab-1"].lanes[0]
        assert lane.server_id == "run-ready"
        await console.press("b")
        assert isinstance(console.screen, ExperimentScreen)
        assert "1/4" in console.text()
        assert "measuring · k25-eagle3 · round 1" in console.text()
        assert "figures come with the first whole round" in console.text()


def test_the_stop_of_what_makes_room_is_told() -> None:
    going = replace(
        snapshots.ready(),
        state=ServerState.STOPPING,
        stop=StopView(steps=("TERM sent to 4 processes",), elapsed_s=3.2),
    )
    lane = replace(running().lanes[0], state=State.MAKING_ROOM, probe=None)
    rows = [row.plain.strip() for row in course(running(lanes=(lane,)), snapshots.only(going), 90)]
    assert f"{going.id} stopping, 3.2 s: TERM sent to 4 processes" in rows


@pytest.mark.parametrize("size", ["80x24", "120x40", "200x50"])
async def test_runs_frames(size: str) -> None:
    width, height = map(int, size.split("x"))
    async with opened(
        snapshots.FLEET, size=(width, height), experiments=FakeExperiments()
    ) as console:
        await console.press("u")
        assert isinstance(console.screen, RunsScreen)
        check_frame(console.app, f"runs-{size}")


async def test_runs_are_filtered_and_read() -> None:
    async with opened(snapshots.FLEET, experiments=FakeExperiments()) as console:
        await console.press("u")
        assert "1.57 x" in console.text()
        assert "E writes the report" in console.text()
        await console.press("j")
        assert "no run 'sweep-2'" in console.text()
        await console.press("slash", *"eagle", "enter")
        assert "steps 3" not in console.text()
        await console.press("slash", *"zz")
        assert "nothing matches 'zz'" in console.text()
        await console.press("escape", "enter", "escape")
        assert "Hosts and GPUs" in console.text()


@pytest.mark.parametrize("key", ["b", "u"])
async def test_without_a_history_the_keys_say_so(key: str) -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press(key)
        assert "this console keeps no experiments" in console.said[-1]


def test_ratios_stand_on_a_fixed_scale() -> None:
    names = [arm.name for arm in PLAN.arms]
    rows = [line.plain for line in ratio_chart(names, FINDINGS, 70)]
    assert rows[0].index("│") < rows[0].index("●")
    assert rows[1].split() == ["1/4", "1/2", "1", "2", "4", "x"]
    assert ratio_chart(names, None, 70) == []
    assert ratio_chart(names, FINDINGS, 20) == []
    assert isinstance(FINDINGS.comparisons[0].ratio, Interval)


@pytest.mark.parametrize("width", [30, 60, 90, 140])
def test_figures_are_left_out_whole_never_clipped(width: int) -> None:
    names = [arm.name for arm in PLAN.arms]
    rows = figures_table(names, FINDINGS, running(), width)
    assert all(line.cell_length <= max(width, 18) for line in rows)
    assert len({line.cell_length for line in rows}) == 1
    unmeasured = replace(FINDINGS.arms[1], trials=0)
    findings = replace(FINDINGS, arms=(FINDINGS.arms[0], unmeasured, *FINDINGS.arms[2:]))
    view = replace(running(), failures={1: "out of memory"})
    failed = figures_table(names, findings, view, width)
    assert "failed: out" in failed[2].plain or width == 30


def test_what_was_measured_of_an_arm_that_ended_early_stays_in_the_table() -> None:
    names = [arm.name for arm in PLAN.arms]
    whole = figures_table(names, FINDINGS, running(), 90)
    early = replace(running(), failures={0: "out of memory"}, given_up={1: "at most 0.80 x a"})
    assert figures_table(names, FINDINGS, early, 90) == whole
    reasons = [line.plain.rstrip() for line in reason_lines(names, early, 90)]
    assert reasons == [
        f"✗ {names[0]}: out of memory",
        f"• {names[1]} is measured no further: at most 0.80 x a",
    ]


async def test_leaving_in_the_middle_of_an_experiment_asks_first() -> None:
    fake = FakeExperiments(running())
    async with opened(snapshots.FLEET, experiments=fake) as console:
        await console.press("q")
        assert not console.app._exit
        assert "q again cancels it and stops its servers" in console.said[-1]
        await console.pilot.press("q")
        assert console.app._exit
