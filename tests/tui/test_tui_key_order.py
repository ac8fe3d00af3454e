"""Keys that come in one burst, faster than any of them is dealt with."""

import time

from textual import events
from textual.widgets import Input, TextArea

from tests.tui import snapshots
from tests.tui.console import Opened, opened


async def burst(console: Opened, *keys: str, until: str) -> None:
    """Send keys with nothing between them and wait until ``until`` is in the form."""
    for key in keys:
        console.app.post_message(events.Key(key, key if len(key) == 1 else None))
    deadline = time.monotonic() + 60
    while until not in _texts(console):
        assert time.monotonic() < deadline, _texts(console)
        await console.settle()


def _texts(console: Opened) -> list[str]:
    screen = console.screen
    return [*(one.value for one in screen.query(Input)), screen.query_one(TextArea).text]


async def test_what_is_typed_after_a_tab_goes_into_the_next_field() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("s")
        console.screen.query_one("#port").focus()
        await console.settle()
        typed = ["end", *["backspace"] * 3, *"12", "tab", *"7", "tab", *"9", "left", *"8", "tab"]
        await burst(console, *typed, *"654321", until="654321")
        assert _texts(console)[:4] == ["3012", "7", "89", "654321"]


async def test_lines_that_are_typed_quickly_keep_their_order() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("s")
        flags = console.screen.query_one(TextArea)
        flags.text = ""
        flags.focus()
        await console.settle()
        typed = [*"ab", "enter", *"cx", "backspace", *"d", "up", "end", *"e", "down", *"end"]
        await burst(console, *typed, until="abe\ncdend")


async def test_a_burst_on_the_screens_is_carried_out_in_turn() -> None:
    async with opened(snapshots.FLEET) as console:
        for key in ("o", "escape", "s"):
            console.app.post_message(events.Key(key, key if len(key) == 1 else None))
        deadline = time.monotonic() + 60
        while "Start a server" not in console.text():
            assert time.monotonic() < deadline, console.text()
            await console.settle()
        assert len(console.app.screen_stack) == 2
