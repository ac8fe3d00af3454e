"""The fleet screen: moving, folding, filtering, and texts from hosts."""

from dataclasses import replace

from textual.widgets import Input

from eaglemon.core.hosts import LinkState
from eaglemon.core.views import ServerState
from eaglemon.tui.screens.fleet import FleetScreen
from eaglemon.tui.screens.server import ServerScreen
from eaglemon.tui.widgets.host_list import HostList
from eaglemon.tui.widgets.server_list import ServerList
from tests.tui import snapshots
from tests.tui.console import Opened, opened


def servers(console: Opened) -> ServerList:
    return console.screen.query_one(ServerList)


def hosts(console: Opened) -> HostList:
    return console.screen.query_one(HostList)


async def test_keys_move_the_cursor() -> None:
    async with opened(snapshots.FLEET) as console:
        listing = servers(console)
        assert listing.cursor_key == "run-ready"
        await console.press("j")
        assert listing.cursor_key == "run-starting"
        await console.press("down")
        assert listing.cursor_key == "run-failed"
        await console.press("k", "up")
        assert listing.cursor_key == "run-ready"
        await console.press("G")
        assert listing.cursor_key == "run-killed"
        await console.press("g")
        assert listing.cursor_key == "run-ready"
        await console.press("pagedown")
        assert listing.cursor_key == "run-killed"
        await console.press("pageup", "k")
        assert listing.cursor_key == "run-ready"


async def test_tab_brackets_and_digits_move_between_the_lists() -> None:
    async with opened(snapshots.FLEET) as console:
        assert servers(console).has_focus
        await console.press("left_square_bracket")
        assert hosts(console).has_focus
        await console.press("right_square_bracket")
        assert servers(console).has_focus
        await console.press("1")
        assert hosts(console).has_focus
        await console.press("2")
        assert servers(console).has_focus
        await console.press("tab")
        assert hosts(console).has_focus


async def test_the_cursor_stays_on_its_server_when_others_come_and_go() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("j")
        newer = replace(snapshots.ready(), id="run-newer", name="newer")
        await console.push(replace(snapshots.FLEET, servers=(newer, *snapshots.FLEET.servers)))
        assert servers(console).cursor_key == "run-starting"
        rest = tuple(s for s in snapshots.FLEET.servers if s.id != "run-starting")
        await console.push(replace(snapshots.FLEET, servers=rest))
        assert servers(console).cursor_key == "run-failed"
        await console.push(replace(snapshots.FLEET, servers=()))
        assert servers(console).cursor_key is None


async def test_a_long_list_scrolls_with_the_cursor() -> None:
    many = tuple(
        replace(snapshots.ready(), id=f"run-{number}", name=f"server-{number}")
        for number in range(80)
    )
    async with opened(replace(snapshots.FLEET, servers=many)) as console:
        await console.press("G")
        assert "server-79" in console.text()
        assert servers(console).scroll_offset.y > 0
        await console.press("g")
        assert "server-0 " in console.text()
        assert servers(console).scroll_offset.y == 0


async def test_space_folds_a_host_and_i_shows_processes() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("1", "space")
        assert "112.0/140.4" not in console.text()
        assert hosts(console).cursor_key == "host/h200-a"
        await console.press("space")
        assert "112.0/140.4" in console.text()
        await console.press("i")
        assert "pid 640" in console.text()
        await console.press("i")
        assert "pid 640" not in console.text()


async def test_servers_are_sorted_by_any_column_and_turned_round() -> None:
    async with opened(snapshots.FLEET) as console:
        listing = servers(console)

        def order() -> list[str]:
            return [row.key for row in listing._rows if row.selectable]

        newest = order()
        said = ["state", "name", "host", "accept length, highest first", "tok/s, highest first"]
        for name in said:
            await console.press("greater_than_sign")
            assert console.said[-1] == f"servers by {name}"
        assert order()[0] == "run-ready"
        await console.press("less_than_sign", "less_than_sign", "less_than_sign")
        assert order() == ["run-killed", "run-ready", "run-failed", "run-starting"]
        await console.press("I")
        assert console.said[-1] == "servers by name, turned round"
        assert order() == ["run-starting", "run-failed", "run-ready", "run-killed"]
        await console.press("I", "less_than_sign", "less_than_sign")
        assert order() == newest


async def test_the_living_come_before_the_ended() -> None:
    servers_then = tuple(reversed(snapshots.FLEET.servers))
    async with opened(replace(snapshots.FLEET, servers=servers_then)) as console:
        keys = [row.key for row in servers(console)._rows if row.selectable]
        assert keys == ["run-starting", "run-ready", "run-killed", "run-failed"]
        assert servers(console).cursor_key == "run-starting"


async def test_enter_and_o_open_the_server_and_escape_comes_back() -> None:
    async with opened(snapshots.FLEET) as console:
        for key in ("enter", "o"):
            await console.press("j", key)
            screen = console.screen
            assert isinstance(screen, ServerScreen)
            await console.press("escape", "k")
            assert isinstance(console.screen, FleetScreen)


async def test_a_click_moves_and_a_second_click_opens() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.pilot.click("#servers", offset=(5, 3))
        await console.settle()
        assert servers(console).cursor_key == "run-starting"
        await console.pilot.click("#servers", offset=(5, 3))
        await console.settle()
        assert isinstance(console.screen, ServerScreen)


async def test_a_click_on_the_key_line_acts() -> None:
    async with opened(snapshots.FLEET) as console:
        line = console.text().splitlines()[-1]
        await console.pilot.click("KeyLine", offset=(line.index("? help") + 2, 0))
        await console.settle()
        assert "Help" in console.text()


async def test_a_click_on_a_tab_switches() -> None:
    async with opened(snapshots.FLEET, size=(80, 24)) as console:
        await console.pilot.click("TabLine", offset=(14, 0))
        await console.settle()
        assert servers(console).has_focus


async def test_filter() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("slash")
        assert console.screen.query_one("#filter", Input).has_focus
        await console.press(*"baseline")
        text = console.text()
        assert "k25-baseline" in text
        assert "k25-eagle3" not in text
        await console.press("enter")
        assert servers(console).has_focus
        assert servers(console).cursor_key == "run-killed"
        await console.press("escape")
        assert "k25-eagle3" in console.text()
        await console.press("escape")
        assert "first screen" in console.said[-1]


async def test_a_filter_that_matches_nothing_says_so() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("slash", *"zz")
        assert console.text().count("nothing matches 'zz'") == 2
        await console.press("escape")
        assert "nothing matches" not in console.text()


async def test_texts_from_a_host_are_shown_literally() -> None:
    hostile = replace(
        snapshots.ready(), name="[red]x[/red] [/]", detail="[bold]d", notes=("[link=a]b",)
    )
    host = replace(
        snapshots.DOWN,
        spec=replace(snapshots.DOWN.spec, name="[b]host[/b]"),
        detail="[red]down[/red] \x1b[31mred\x07",
    )
    snapshot = replace(snapshots.FLEET, hosts=(host,), servers=(hostile,))
    async with opened(snapshot) as console:
        text = console.text()
        assert "[red]x[/red] [/]" in text
        assert "[b]host[/b]" in text
        assert "[red]down[/red]" in text
        assert "[link=a]b" in text
        assert "\x1b" not in text
        await console.press("K")
        assert "Kill [red]x[/red] [/] on" in console.text()
        await console.press("escape", "t")
        assert "Probe [red]x[/red] [/] on" in console.text()


async def test_a_lost_gpu_and_a_broken_driver_are_told() -> None:
    host = snapshots.host("h200-a", snapshots.gpus(1.0, count=2))
    assert host.sample is not None
    lost = replace(host.sample.gpus[1], error="GPU is lost", memory_used_bytes=None)
    broken = replace(
        host,
        sample=replace(
            host.sample,
            gpus=(host.sample.gpus[0], lost),
            driver_error="Driver/library version mismatch",
        ),
    )
    async with opened(replace(snapshots.IDLE, hosts=(broken,))) as console:
        assert "GPU is lost" in console.text()
        assert "driver: Driver/library version mismatch" in console.text()


async def test_news_is_told_once() -> None:
    async with opened(snapshots.only(snapshots.starting())) as console:
        up = replace(snapshots.starting(), state=ServerState.READY, ready_at=snapshots.AT)
        await console.push(snapshots.only(up))
        assert console.said == ["k25-eagle3 is ready after 4 m 43 s"]
        await console.push(snapshots.only(up))
        assert len(console.said) == 1
        host = replace(snapshots.FLEET.hosts[0], state=LinkState.DOWN, detail="no route")
        await console.push(replace(snapshots.only(up), hosts=(host,)))
        assert console.said[-1] == "h200-a is down: no route"
