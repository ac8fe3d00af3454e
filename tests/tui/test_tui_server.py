"""The server screen: tabs, log, pause, and what its keys do."""

from dataclasses import replace

from eaglemon.core.views import LogBatch, ServerState
from eaglemon.errors import HostError
from eaglemon.tui.screens.fleet import FleetScreen
from eaglemon.tui.widgets.log_view import MAX_LINES, LogView, clean
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import FakeConsole

READY = snapshots.only(snapshots.ready())


async def test_the_log_is_literal_complete_and_without_terminal_sequences() -> None:
    async with opened(READY, logs=(snapshots.LOG,)) as console:
        await console.press("l")
        log = console.screen.query_one(LogView)
        assert log.has_focus
        text = "\n".join(log.lines)
        assert "[red]not red[/red] [b]" in text
        assert "\x1b" not in text
        assert log.lines[1] == " "
        assert len(log.lines) == 5
        assert "following, 5 lines" in console.text()


async def test_an_unreadable_log_says_why() -> None:
    fake = FakeConsole(READY, log_error=HostError("log of k25: permission denied", hint="chmod it"))
    async with opened(READY, fake=fake) as console:
        await console.press("l")
        assert "the log cannot be read: log of k25: permission denied; chmod it" in console.text()
        assert "Log ─ ended" in console.text()


async def test_the_log_follows_until_scrolled_away() -> None:
    lines = tuple(f"line {number}" for number in range(500))
    async with opened(READY, logs=(LogBatch(lines=lines, next_offset=1),)) as console:
        await console.press("l")
        assert "line 499" in console.text()
        await console.press("g")
        assert "line 0" in console.text()
        assert "not following (G)" in console.text()
        log = console.screen.query_one(LogView)
        log.add(["newest"])
        await console.settle()
        assert "newest" not in console.text()
        await console.press("G")
        assert "newest" in console.text()
        assert "─ following" in console.text()
        await console.press("k", "k")
        assert "not following" in console.text()
        await console.press("j", "j")
        assert "─ following" in console.text()


async def test_the_log_follows_when_its_panel_shrinks() -> None:
    lines = tuple(f"line {number}" for number in range(500))
    logs = (LogBatch(lines=lines, next_offset=1),)
    async with opened(snapshots.only(snapshots.starting()), logs=logs) as console:
        await console.press("o", "4")
        assert "line 499" in console.text()
        await console.push(snapshots.only(replace(snapshots.ready(), id="run-starting")))
        assert "Throughput" in console.text()
        assert "line 499" in console.text()
        assert "─ following" in console.text()


async def test_the_log_is_bounded() -> None:
    lines = tuple(f"line {number}" for number in range(MAX_LINES + 50))
    async with opened(READY, logs=(LogBatch(lines=lines, next_offset=1),)) as console:
        await console.press("l")
        log = console.screen.query_one(LogView)
        assert log.line_count == MAX_LINES
        assert f"{MAX_LINES + 50:,} lines".replace(",", " ") in console.text()


def test_log_lines_are_cleaned() -> None:
    assert clean("a\tb\x00c\r\n") == "a b\N{REPLACEMENT CHARACTER}c"
    assert clean("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x") == "red x"
    assert clean("") == " "
    assert clean("x" * 5000).endswith("… (5 000 characters)")


async def test_digits_and_brackets_switch_tabs() -> None:
    async with opened(READY, size=(80, 24), logs=(snapshots.LOG,)) as console:
        await console.press("2", "o")
        assert "took 5 m 31 s" in console.text()
        await console.press("2")
        assert "position 1" in console.text()
        await console.press("right_square_bracket")
        assert "Throughput" in console.text()
        assert "decode" in console.text()
        await console.press("4")
        assert "ready to roll" in console.text()
        await console.press("right_square_bracket")
        assert "Start-up ─" in console.text()
        await console.press("left_square_bracket")
        assert "ready to roll" in console.text()


async def test_l_on_the_fleet_opens_the_log_tab() -> None:
    async with opened(READY, size=(80, 24), logs=(snapshots.LOG,)) as console:
        await console.press("2", "l")
        assert "ready to roll" in console.text()


async def test_o_on_an_open_server_says_so() -> None:
    async with opened(READY) as console:
        await console.press("o", "o")
        assert console.said == ["this server is open already"]


async def test_figures_follow_the_snapshots() -> None:
    async with opened(READY) as console:
        await console.press("o")
        server = snapshots.ready()
        assert server.load is not None
        assert server.acceptance is not None
        changed = replace(
            server,
            load=replace(server.load, tok_s=99.4),
            acceptance=replace(server.acceptance, accept_length=1.5),
        )
        await console.push(snapshots.only(changed))
        assert "99.4" in console.text()
        assert "accept length 1.50 of 6" in console.text()


async def test_pause_freezes_the_picture_and_goes_on_with_the_latest() -> None:
    async with opened(READY) as console:
        await console.press("o", "p")
        assert "PAUSED" in console.text()
        later = replace(snapshots.ready(), name="renamed")
        await console.push(replace(snapshots.only(later), at=READY.at + 60))
        assert "renamed" not in console.text()
        await console.press("p")
        assert "renamed" in console.text()
        assert "14:03:11" in console.text()
        assert "PAUSED" not in console.text()


async def test_a_server_that_is_gone_keeps_its_last_picture() -> None:
    async with opened(READY) as console:
        await console.press("o")
        await console.push(replace(READY, servers=()))
        assert "k25-eagle3" in console.text()
        await console.press("escape")
        assert isinstance(console.screen, FleetScreen)
        assert "no servers yet" in console.text()


async def test_y_copies_the_command_line() -> None:
    async with opened(READY) as console:
        await console.press("o", "y")
        assert console.app.clipboard == snapshots.COMMAND
        assert console.said == ["copied the command line of k25-eagle3"]


async def test_states_are_words() -> None:
    for state in ServerState:
        server = replace(snapshots.ready(), state=state)
        async with opened(snapshots.only(server)) as console:
            assert state.value.upper() in console.text()
            await console.press("o")
            assert state.value.upper() in console.text()


async def test_a_stalled_start_is_told_in_words() -> None:
    server = replace(snapshots.starting(), stalled=True, detail="no new line for 120 s")
    async with opened(snapshots.only(server)) as console:
        assert "! STALLED" in console.text()
        await console.press("o")
        assert "stalled: no new line for 120 s" in console.text()


async def test_an_unproven_stop_is_told() -> None:
    server = snapshots.killed()
    assert server.stop is not None
    stop = replace(server.stop, proven=False, memory_to_release_bytes=36 * 1024**3)
    async with opened(snapshots.only(replace(server, stop=stop))) as console:
        await console.press("o")
        assert "✗ not proven: 0 processes left · 36.0 GiB to come back" in console.text()


async def test_chart_scales_grow_and_never_shrink() -> None:
    async with opened(READY) as console:
        await console.press("o")
        assert "200 ┤" in console.text()
        high = replace(snapshots.ready(), tok_s_history=((snapshots.AT - 1, 420.0),))
        await console.push(snapshots.only(high))
        assert "500 ┤" in console.text()
        await console.push(READY)
        assert "500 ┤" in console.text()


async def test_the_time_left_of_a_start_is_told_with_its_source() -> None:
    server = replace(
        snapshots.starting(),
        ready_eta_s=(60.0, 90.0),
        eta_source="earlier starts",
        usual_start_s=320.0,
    )
    async with opened(snapshots.only(server)) as console:
        assert "left" in console.text()
        await console.press("o")
        assert "left (earlier starts)" in console.text()
        assert ", usually 5 m 20 s, " in console.text()
