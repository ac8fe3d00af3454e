"""What is on the screen, at three sizes and on a small terminal. Frames are reviewed as text."""

from dataclasses import replace

import pytest

from eaglemon.core.problems import Problem
from eaglemon.core.views import Snapshot
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import FakeConsole
from tests.tui.frame import check_frame

SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x50": (200, 50)}
SERVERS = {
    "starting": snapshots.starting(),
    "ready": snapshots.ready(),
    "failed": snapshots.failed(),
    "killed": snapshots.killed(),
}
STALE = replace(
    snapshots.FLEET,
    hosts=(snapshots.STALE,),
    servers=(replace(snapshots.ready(), host="h200-c"),),
)
FLEETS = {
    "empty": snapshots.EMPTY,
    "idle": snapshots.IDLE,
    "fleet": snapshots.FLEET,
    "down": replace(snapshots.FLEET, hosts=(snapshots.DOWN,), servers=()),
    "stale": STALE,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FLEETS)
async def test_fleet(name: str, size: str) -> None:
    async with opened(FLEETS[name], size=SIZES[size]) as console:
        check_frame(console.app, f"fleet-{name}-{size}")


@pytest.mark.parametrize("size", ["120x40", "200x50"])
@pytest.mark.parametrize("name", SERVERS)
async def test_server(name: str, size: str) -> None:
    snapshot = snapshots.only(SERVERS[name])
    async with opened(snapshot, size=SIZES[size], logs=(snapshots.LOG,)) as console:
        await console.press("enter")
        check_frame(console.app, f"server-{name}-{size}")


@pytest.mark.parametrize("tab", ["1", "2", "3", "4"])
@pytest.mark.parametrize("name", SERVERS)
async def test_server_tabs(name: str, tab: str) -> None:
    snapshot = snapshots.only(SERVERS[name])
    async with opened(snapshot, size=(80, 24), logs=(snapshots.LOG,)) as console:
        await console.press("2", "o", tab)
        check_frame(console.app, f"server-{name}-80x24-tab{tab}")


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("fleet", ()),
        ("servers", ("2",)),
        ("start", ("2", "j", "o")),
        ("accept", ("2", "o", "2")),
        ("speed", ("2", "o", "3")),
        ("log", ("2", "o", "4")),
        ("confirm", ("2", "K")),
        ("launch", ("s",)),
        ("probe", ("2", "t")),
        ("help", ("question_mark",)),
    ],
)
async def test_small_terminal(name: str, keys: tuple[str, ...]) -> None:
    async with opened(snapshots.FLEET, size=(60, 18), logs=(snapshots.LOG,)) as console:
        await console.press(*keys)
        check_frame(console.app, f"small-{name}-60x18")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "key"),
    [("confirm", "K"), ("launch", "s"), ("probe", "t"), ("help", "question_mark")],
)
async def test_dialogs(name: str, key: str, size: str) -> None:
    async with opened(snapshots.FLEET, size=SIZES[size]) as console:
        if key in "Kt":
            await console.press("2")
        await console.press(key)
        check_frame(console.app, f"dialog-{name}-{size}")


async def test_processes_are_shown_on_request() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("i")
        check_frame(console.app, "fleet-processes-120x40")


@pytest.mark.parametrize("width", [20, 40, 79, 80, 119, 120, 160])
@pytest.mark.parametrize("height", [6, 12, 32])
async def test_no_size_is_refused(width: int, height: int) -> None:
    async with opened(snapshots.FLEET, size=(width, height), logs=(snapshots.LOG,)) as console:
        await console.press("o", "1", "2", "3", "4", "escape")
        assert console.text()


async def test_a_terminal_too_small_says_so_until_it_is_enlarged() -> None:
    async with opened(snapshots.FLEET, size=(80, 24)) as console:
        await console.press("2")
        before, focused = console.text(), console.app.focused
        await console.pilot.resize_terminal(20, 5)
        await console.settle()
        words = [line.strip() for line in console.text().splitlines() if line.strip()]
        assert words == ["20x5 is too small", "enlarge to 40x10"]
        await console.press("K", "s")
        await console.pilot.resize_terminal(60, 9)
        await console.settle()
        assert console.text().strip() == "60x9 is too small / enlarge to 40x10"
        await console.pilot.resize_terminal(80, 24)
        await console.settle()
        # Keys meanwhile opened nothing.
        assert (console.text(), console.app.focused) == (before, focused)


async def test_a_dialog_too_gives_way_to_a_terminal_too_small() -> None:
    async with opened(snapshots.FLEET, size=(80, 24)) as console:
        await console.press("2", "K")
        before = console.text()
        await console.pilot.resize_terminal(39, 24)
        await console.press("y")
        assert console.text().strip() == "39x24 is too small / enlarge to 40x10"
        await console.pilot.resize_terminal(80, 24)
        await console.settle()
        assert console.text() == before
        assert console.called("stop") == []


async def test_many_problems_leave_the_buttons_of_the_launch_form_in_sight() -> None:
    problem = Problem(where="gpus", message="held by others " * 9, hint="wait for their end " * 9)
    fake = FakeConsole(snapshots.FLEET, problems=[problem, problem])
    async with opened(snapshots.FLEET, size=(80, 24), fake=fake) as console:
        await console.press("s")
        check_frame(console.app, "dialog-launch-problems-80x24")
        await console.press("pagedown")
        assert "--port 30000" in " ".join(console.text().replace("│", " ").split())


async def test_resizing_switches_between_panes_and_tabs() -> None:
    async with opened(snapshots.FLEET, size=(120, 40)) as console:
        wide = console.text()
        await console.pilot.resize_terminal(80, 24)
        await console.settle()
        assert "1 Hosts" in console.text()
        await console.pilot.resize_terminal(120, 40)
        await console.settle()
        assert console.text() == wide


@pytest.mark.parametrize("used", [None, 0, 512 * 1024**2])
async def test_figures_of_gpus_never_move_sideways(used: int | None) -> None:
    def with_used(snapshot: Snapshot) -> Snapshot:
        host = snapshot.hosts[0]
        assert host.sample is not None
        first, *others = host.sample.gpus
        changed = replace(first, memory_used_bytes=used, utilisation_percent=None, power_w=None)
        sample = replace(host.sample, gpus=(changed, *others))
        return replace(snapshot, hosts=(replace(host, sample=sample),))

    async with opened(with_used(snapshots.IDLE)) as console:
        rows = console.text().splitlines()[4:6]
        assert rows[0].index("/140.4") == rows[1].index("/140.4")
        assert "-" in rows[0]
