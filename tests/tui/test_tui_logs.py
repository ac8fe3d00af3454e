"""The log screen: search, filter, the line that decides, and a log that never ends."""

import time

from textual.events import MouseMove

from eaglemon.core.views import LogBatch
from eaglemon.tui.log_buffer import LogBuffer, matches
from eaglemon.tui.screens.log import LogScreen
from eaglemon.tui.widgets.log_view import MAX_LINES, LogView
from tests.tui import snapshots
from tests.tui.console import Opened, opened

READY = snapshots.only(snapshots.ready())
LINES = tuple(f"line {n} {'Error' if n % 100 == 7 else 'decode'}" for n in range(1000))
MANY = (LogBatch(lines=LINES, next_offset=1),)


def shown_place(console: Opened) -> int | None:
    return console.screen.query_one(LogView)._place


async def test_search_goes_up_from_the_end_and_on_with_n() -> None:
    async with opened(READY, logs=MANY) as console:
        await console.press("l", "slash", *"error", "enter")
        assert console.said[-1] == "hit 10 of 10"
        assert "line 907 Error" in console.text()
        assert "not following" in console.text()
        await console.press("N")
        assert (console.said[-1], shown_place(console)) == ("hit 9 of 10", 807)
        await console.press("n", "n")
        assert (console.said[-1], shown_place(console)) == ("hit 1 of 10", 7)
        await console.press("G")
        assert "line 999" in console.text()


async def test_a_search_without_hits_and_without_a_text_says_so() -> None:
    async with opened(READY, logs=MANY) as console:
        await console.press("l", "n")
        assert console.said[-1] == "nothing to look for: type it after /"
        await console.press("slash", *"zz", "enter")
        assert console.said[-1] == "no line contains 'zz'"


def test_capitals_count_where_they_are_typed() -> None:
    assert matches("An Error", "error")
    assert not matches("an error", "Error")


async def test_a_filter_shows_only_what_contains_it_and_follows() -> None:
    async with opened(READY, logs=MANY) as console:
        await console.press("l", "ampersand", *"Error", "enter")
        log = console.screen.query_one(LogView)
        assert len(log.lines) == 10
        assert "10 with 'Error'" in console.text()
        assert "decode" not in console.text()
        log.add(["another Error", "quiet"])
        await console.settle()
        assert log.lines[-1] == "another Error"
        await console.press("escape")
        assert len(log.lines) == 1002
        assert isinstance(console.screen, LogScreen)
        await console.press("escape")
        assert not isinstance(console.screen, LogScreen)


async def test_c_goes_to_the_line_that_decides() -> None:
    failed = snapshots.failed()
    assert failed.cause is not None
    decisive = failed.cause.decisive_line
    assert decisive is not None
    lines = (*LINES, f"[2026-11-29 14:01:40 TP3] {decisive}", *LINES)
    logs = (LogBatch(lines=lines, next_offset=1),)
    async with opened(snapshots.only(failed), logs=logs) as console:
        await console.press("c")
        assert isinstance(console.screen, LogScreen)
        assert shown_place(console) == 1000
        assert "torch.OutOfMemoryError" in console.text()


async def test_a_deciding_line_that_was_not_read_is_told() -> None:
    async with opened(snapshots.only(snapshots.failed()), logs=MANY) as console:
        await console.press("c")
        assert console.said[-1].startswith("line 1 842 is not among those read: torch.OutOf")


async def test_slash_on_a_server_searches_its_log() -> None:
    async with opened(READY, logs=MANY) as console:
        await console.press("o", "slash", *"line 5", "enter")
        assert isinstance(console.screen, LogScreen)
        assert console.said[-1].startswith("hit ")
        await console.press("l")
        assert console.said[-1].startswith("the log is open")


async def test_the_end_is_in_sight_from_the_first_lines_on() -> None:
    async with opened(READY) as console:
        await console.press("o")
        log = console.screen.query_one(LogView)
        # The scrollbars come with these lines: at this moment neither is there.
        log.add([f"line {n} {'x' * 200}" for n in range(120)])
        assert log.scroll_offset.y == log.max_scroll_y > 0
        await console.settle()
        assert log.scroll_offset.y == log.max_scroll_y
        assert "line 119" in console.text()
        assert "Log ─ following, 120 lines" in console.text()


def test_ten_million_lines_are_bounded_and_quick() -> None:
    buffer = LogBuffer(MAX_LINES)
    buffer.filter("7 ")
    batch = [f"Decode batch {n} " for n in range(50_000)]
    started = time.perf_counter()
    for _ in range(200):
        buffer.add(batch)
    took_s = time.perf_counter() - started
    assert buffer.total == 10_000_000
    assert len(buffer.lines) == MAX_LINES
    assert buffer.shown == [line for line in batch[-MAX_LINES:] * 11 if "7 " in line][-MAX_LINES:]
    # Ten million lines in two minutes would be more than any server writes.
    assert took_s < 120


async def test_a_frozen_log_is_collected_and_shown_later() -> None:
    async with opened(READY, logs=MANY) as console:
        await console.press("l", "p")
        log = console.screen.query_one(LogView)
        before = console.text()
        log.add(["written while frozen"])
        await console.settle()
        assert console.text() == before
        await console.press("p")
        assert "written while frozen" in console.text()
        assert "1 001 lines" in console.text()


def dragged_to(log: LogView, row: int) -> MouseMove:
    """Return what the mouse tells while its first button is held."""
    left, top = log.region.offset
    return MouseMove(
        log,
        x=10,
        y=row,
        delta_x=0,
        delta_y=1,
        button=1,
        shift=False,
        meta=False,
        ctrl=False,
        screen_x=left + 10,
        screen_y=top + row,
    )


async def test_lines_are_selected_with_the_mouse() -> None:
    async with opened(READY, logs=MANY) as console:
        await console.press("l", "g")
        log = console.screen.query_one(LogView)
        await console.pilot.mouse_down(log, offset=(10, 3))
        for row in (4, 6):
            log.on_mouse_move(dragged_to(log, row))
        await console.pilot.mouse_up(log, offset=(10, 6))
        await console.settle()
        assert "4 lines selected (y)" in console.text()
        await console.press("y")
        assert console.app.clipboard.split("\n") == list(LINES[2:6])
        await console.pilot.click(log, offset=(10, 5))
        assert "selected" not in console.text()
