"""The dialogs: stop, probe, launch; each with its way out."""

from dataclasses import replace

import pytest
from textual.widgets import Button, Input, Select, TextArea

from eaglemon.core.problems import Problem, Severity
from eaglemon.errors import HostError, ServerError
from eaglemon.tui.screens.confirm import ConfirmStop, stop_account
from eaglemon.tui.screens.fleet import FleetScreen
from eaglemon.tui.screens.help import HelpScreen
from eaglemon.tui.screens.launch import LaunchScreen
from eaglemon.tui.screens.probe import ProbeDialog
from eaglemon.tui.screens.server import ServerScreen
from tests.tui import snapshots
from tests.tui.console import Opened, opened
from tests.tui.fake_console import FakeConsole

PORT = Problem(where="port 30000", message="in use by pid 77", hint="choose another")
WARNING = Problem(where="gpus", message="GPU 0 is in use", severity=Severity.WARNING)


@pytest.mark.parametrize(
    ("keys", "stops"),
    [
        (("y",), True),
        (("n",), False),
        (("escape",), False),
        (("q",), False),
        (("enter",), False),
        (("right", "enter"), True),
        (("tab", "enter"), True),
        (("right", "left", "enter"), False),
    ],
)
async def test_a_stop_is_asked_and_cancel_is_the_default(
    keys: tuple[str, ...], *, stops: bool
) -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("S")
        assert isinstance(console.screen, ConfirmStop)
        await console.press(*keys)
        assert isinstance(console.screen, FleetScreen)
        expected = [("stop", "run-ready", None, False)] if stops else []
        assert console.called("stop") == expected


async def test_kill_gives_little_grace_and_names_everything() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("K")
        text = console.text()
        for part in (
            "Kill k25-eagle3 on h200-a?",
            "profile    k25-eagle3",
            "10: PID 600 601 640",
            "GPUs       0-7, 785 GiB to be freed",
            "1 request is running and will be cut off",
            "TERM now, KILL after 2.0 s",
        ):
            assert part in text
        await console.press("y")
        assert console.called("stop") == [("stop", "run-ready", 2.0, False)]


def test_what_is_not_known_of_a_stop_is_said() -> None:
    server = replace(snapshots.ready(), load=None, pids=(), pid=None, memory_used_bytes=None)
    text = "\n".join(line.plain for line in stop_account(server, None, 70))
    assert "none known" in text
    assert "not known whether any is running" in text
    assert "0-7, memory not known" in text
    assert "KILL after the profile's grace" in text
    idle = replace(snapshots.ready(), load=replace(snapshots.ready().load, running=0))  # type: ignore[type-var]
    assert "none is running" in "\n".join(line.plain for line in stop_account(idle, 15, 70))
    many = replace(snapshots.ready(), pids=tuple(range(20)))
    assert "and 8 more" in "\n".join(line.plain for line in stop_account(many, 15, 70))


async def test_a_stop_that_fails_says_why() -> None:
    fake = FakeConsole(snapshots.FLEET, stop_error=HostError("h200-a: connection lost"))
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("S", "y")
        assert console.said == ["stopping k25-eagle3: h200-a: connection lost"]


async def test_probe_with_other_figures() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("t")
        assert isinstance(console.screen, ProbeDialog)
        assert console.screen.query_one("#probe-workload", Input).has_focus
        console.screen.query_one("#probe-requests", Input).value = "32"
        await console.settle()
        assert "then 32 measured" in console.text()
        await console.press("enter")
        assert console.called("probe") == [("probe", "run-ready", "chat", 32)]
        assert "x cancel probe" in console.text()
        await console.press("t")
        assert "is under way: cancel it with x" in console.said[-1]
        console.fake.probe_may_end.set()
        await console.settle()
        assert console.said[-1] == "probe of k25-eagle3 done: 141.2 tok/s, accept length -"
        await console.press("x")
        assert "no probe or restart of this server is under way" in console.said[-1]


async def test_a_probe_can_be_cancelled() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("t", "ctrl+s", "x")
        assert console.called("probe-cancelled") == [("probe-cancelled", "run-ready")]
        assert not console.app.deeds.probes("run-ready")


async def test_a_wrong_probe_cannot_be_started() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("t")
        console.screen.query_one("#probe-workload", Input).value = "poems"
        await console.settle()
        assert "no workload 'poems'; known: chat, code" in console.text()
        assert console.screen.query_one("#yes", Button).disabled
        await console.press("enter", "ctrl+s")
        assert isinstance(console.screen, ProbeDialog)
        await console.press("escape")
        assert console.called("probe") == []


async def test_only_a_ready_server_can_be_probed() -> None:
    async with opened(snapshots.only(snapshots.starting())) as console:
        await console.press("t")
        assert console.said == ["k25-eagle3 is starting: only a ready server can be probed"]


def form(console: Opened) -> LaunchScreen:
    assert isinstance(console.screen, LaunchScreen)
    return console.screen


async def test_the_launch_form_shows_the_exact_command() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("s")
        screen = form(console)
        assert screen.query_one("#profile").has_focus
        assert "sglang.launch_server --model-path /models/kimi-k2.5 --port 30000" in console.text()
        assert "nothing stands against it" in console.text()
        screen.query_one("#port", Input).value = "31000"
        screen.query_one("#steps", Input).value = "3"
        screen.query_one(
            "#flags", TextArea
        ).text = "tp-size=8\nmem-fraction-static=0.8\nenable-metrics=true\nnew-flag"
        await console.settle()
        assert console.called("plan")[-1] == (
            "plan",
            "k25-eagle3",
            "h200-a",
            {
                "port": "31000",
                "speculation.steps": "3",
                "mem-fraction-static": "0.8",
                "new-flag": "true",
            },
        )
        assert "--port 31000" in console.text()
        await console.press("ctrl+s")
        assert console.called("launch") == [("launch", "k25-eagle3", "h200-a", False)]
        opened_screen = console.screen
        assert isinstance(opened_screen, ServerScreen)
        assert opened_screen.server_id == "run-ready"


async def test_another_profile_fills_the_form_anew() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("s")
        screen = form(console)
        screen.query_one("#profile", Select).value = "k25-baseline"
        await console.settle()
        assert screen.query_one("#port", Input).value == "30001"
        assert screen.query_one("#steps", Input).value == ""
        assert screen.query_one("#steps", Input).disabled
        screen.query_one("#host", Select).value = "h200-b"
        await console.settle()
        assert console.called("plan")[-1] == ("plan", "k25-baseline", "h200-b", {})


async def test_the_form_starts_on_the_host_under_the_cursor() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("1", "G", "s")
        assert form(console).query_one("#host", Select).value == "a100-old"


async def test_problems_stop_a_launch_unless_forced() -> None:
    fake = FakeConsole(snapshots.FLEET, problems=[PORT, WARNING])
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("s")
        text = console.text()
        assert "✗ port 30000: in use by pid 77" in text
        assert "choose another" in text
        assert "▲ gpus: GPU 0 is in use" in text
        assert "Launch anyway" in text
        await console.press("ctrl+s")
        assert console.said[-1].startswith("problems stand against it")
        assert console.called("launch") == []
        await console.press("ctrl+f")
        assert console.called("launch") == [("launch", "k25-eagle3", "h200-a", True)]


async def test_warnings_do_not_stop_a_launch() -> None:
    fake = FakeConsole(snapshots.FLEET, problems=[WARNING])
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("s")
        assert "Launch anyway" not in console.text()
        await console.pilot.click("#yes")
        await console.settle()
        assert len(console.called("launch")) == 1


async def test_a_wrong_flag_is_told_inline() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("s")
        form(console).query_one("#flags", TextArea).text = "bad-flag=1"
        await console.settle()
        assert "unknown flag 'bad-flag'" in console.text()
        assert "did you mean 'tp-size'?" in console.text()
        await console.press("ctrl+s")
        assert "the form has an error" in console.said[-1]
        form(console).query_one("#flags", TextArea).text = "two words=1"
        await console.settle()
        assert "flags, line 1: 'two words=1' is not name=value" in console.text()


async def test_a_launch_that_fails_keeps_the_form() -> None:
    fake = FakeConsole(
        snapshots.FLEET, launch_error=ServerError("port 30000 is in use", hint="choose another")
    )
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("s", "ctrl+s")
        assert "h200-a: port 30000 is in use" in console.text()
        await console.press("escape")
        assert isinstance(console.screen, FleetScreen)


async def test_a_launch_under_way_is_not_left() -> None:
    fake = FakeConsole(snapshots.FLEET, hang=True)
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("s", "ctrl+s")
        assert "launching" in console.text()
        await console.press("escape", "ctrl+s")
        assert isinstance(console.screen, LaunchScreen)
        assert console.said == [
            "the launch is on its way: wait for its answer",
            "launching: waiting for the host's answer",
        ]
        assert len(console.called("launch")) == 1


@pytest.mark.parametrize("key", ["escape", "q", "question_mark", "f1"])
async def test_help_closes(key: str) -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("question_mark")
        assert isinstance(console.screen, HelpScreen)
        await console.press("j", "k", "down", "up", key)
        assert isinstance(console.screen, FleetScreen)
