"""Small things that somebody stumbles over: figures of a warm-up, and messages that say why."""

import asyncio
import socket
import sys
from dataclasses import replace

import pytest
from click.shell_completion import BashComplete
from textual.command import CommandInput, CommandList, CommandPalette, SearchIcon

from eaglemon.app.local_files import ConfigFiles
from eaglemon.app.preflight import _shown as shown
from eaglemon.cli.main import cli, run
from eaglemon.cli.watching import opening_lines
from eaglemon.core.hosts import HostSpec
from eaglemon.core.views import LogBatch
from eaglemon.errors import EaglemonError, UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.tui import log_target, panels
from eaglemon.tui.screens.log import LogScreen
from tests.tui import snapshots
from tests.tui.console import Opened, opened


def test_a_warm_up_is_none_of_the_requests() -> None:
    server = snapshots.ready()
    assert server.probe is not None
    warming = replace(server.probe, state="warming-up", done=1)
    text = panels.probe(warming, 80).plain
    assert " 1/2 " in text
    assert "tok/s   -" in text
    title = panels.title_line(replace(server, probe=warming), 120, None).plain
    assert title.rstrip().endswith("warming up 1/2")
    running = panels.probe(server.probe, 80).plain
    assert f" {server.probe.done}/{server.probe.plan.requests} " in running


async def test_messages_of_one_action_do_not_pile_up() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("x", "T", "T", "x", "T")
        assert [text[:5] for text in console.said] == ["no pr", "theme"]
        await console.press("2", "S")
        assert console.said == []
        assert "Stop k25-eagle3" in console.text()


async def test_the_help_goes_to_its_ends() -> None:
    async with opened(snapshots.FLEET, size=(80, 24)) as console:
        await console.press("?")
        text = console.screen.query_one("#help-text")
        await console.press("G")
        assert text.scroll_offset.y == text.max_scroll_y > 0
        await console.press("g")
        assert text.scroll_offset.y == 0


async def test_the_palette_takes_the_action_that_begins_as_typed() -> None:
    async with opened(snapshots.FLEET, ascii_only=True) as console:
        await console.press("2", "ctrl+p")
        assert isinstance(console.screen, CommandPalette)
        field = console.screen.query_one(CommandInput)
        # Its emoji is a box in many terminals, and no ASCII.
        assert not console.screen.query_one(SearchIcon).display
        assert field.placeholder == "Search for commands"
        await console.press(*"kill")
        found = console.screen.query_one(CommandList)
        async with asyncio.timeout(60):
            while not found.option_count or "Kill the" not in str(
                found.get_option_at_index(0).prompt
            ):
                await asyncio.sleep(0.02)
        await console.press("enter")
        await console.settle()
        assert "Kill k25-eagle3" in console.text()


def lines(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"line {number}" for number in range(first, first + count))


async def in_log(console: Opened) -> LogScreen:
    await console.press("2", "l")
    screen = console.screen
    assert isinstance(screen, LogScreen)
    return screen


async def test_lines_that_arrive_are_not_selected_by_themselves() -> None:
    batch = LogBatch(lines=lines(0, 3000), next_offset=0)
    async with opened(snapshots.FLEET, logs=(batch,)) as console:
        screen = await in_log(console)
        await console.press("v", "j", "G")
        before = screen.texts()
        screen._log.add(lines(3000, 500))
        await console.settle()
        assert screen.texts() == before
        await console.press("y")
        assert "the last of" not in console.said[-1]


async def test_a_copy_that_was_cut_says_so() -> None:
    batch = LogBatch(lines=lines(0, 3000), next_offset=0)
    async with opened(snapshots.FLEET, logs=(batch,)) as console:
        await in_log(console)
        await console.press("g", "v", "G", "y")
        assert "copied 2 000 lines selected, the last of 3 000" in console.said[-1]


def test_a_browser_is_told_an_address_only_once_it_serves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run(["serve", "local", "--port", port]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "cannot be used: Address already in use; choose another with --port" in told.err
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    assert run(["serve", "local", "--port", port]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "needs textual-serve" in told.err


def test_a_terminal_without_a_cursor_is_sent_to_the_linear_mode(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEXTUAL_DRIVER", raising=False)
    monkeypatch.setenv("TERM", "dumb")
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True)
    assert run(["tui", "local"]) == 2
    told = capsys.readouterr().err
    assert "TERM=dumb" in told
    assert "eaglemon status --watch" in told


def test_servers_of_one_name_are_told_apart_by_ear() -> None:
    server = snapshots.ready()
    other = replace(server, id="another", port=30001)
    lines = opening_lines(replace(snapshots.FLEET, servers=(server, other)))
    assert "k25-eagle3 on h200-a (port 30000) is ready" in lines
    assert "k25-eagle3 on h200-a (port 30001) is ready" in lines
    same = opening_lines(replace(snapshots.FLEET, servers=(server, replace(other, port=30000))))
    assert "k25-eagle3 on h200-a (another) is ready" in same


def test_a_wrong_name_is_held_against_the_hosts_of_this_console() -> None:
    with pytest.raises(UsageError, match="sim"):
        ConfigFiles(ProfileStore.load).named_host("sim ", (HostSpec(name="sim"),))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("launch sglang-b", "sglang-baseline"),
        ("ab sglang-eagle3 sglang-b", "sglang-baseline"),
        ("profiles show sglang-b", "sglang-baseline"),
        ("gpus loc", "local"),
        ("status --host loc", "local"),
        ("tui --theme high", "high-contrast"),
        ("tui --theme dracu", "dracula"),
    ],
)
def test_shells_complete_names(words: str, offered: str) -> None:
    args = words.split()
    shell = BashComplete(cli, {}, "eaglemon", "_EAGLEMON_COMPLETE")
    assert offered in [item.value for item in shell.get_completions(args[:-1], args[-1])]


def test_descriptions_in_fish_keep_their_commas(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "fish"]) == 0
    assert 'string split -m 1 "," $completion' in capsys.readouterr().out


@pytest.mark.parametrize("text", ["25:99", "14:60", "11-29 24:00"])
def test_a_time_that_no_clock_shows_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"there is no time '{text}'"):
        log_target.wanted_stamp(text, 1_000_000.0)


def test_a_time_that_the_log_does_not_hold_is_told() -> None:
    day = 20 * log_target.DAY_S
    told = log_target.nothing_there
    assert told("09:00", day, day + 1800, 0) == "nothing at 09:00: the log begins at 01-21 00:30:00"
    assert told("09:00", day, day + 1800, 7).startswith("nothing at 09:00: the next line is at")
    assert told("09:00", day, day + 59, 7) == ""
    assert told("09:00:00", day, day + 59, 7) != ""
    assert told("09:00", day, None, 7) == ""


async def test_the_time_left_of_a_start_is_told_once() -> None:
    server = replace(
        snapshots.FLEET.servers[1],
        detail="import, ready in 8.1 s to 16 s",
        ready_eta_s=(8.1, 16.0),
        stalled=False,
    )
    assert server.state.starting
    async with opened(replace(snapshots.FLEET, servers=(server,))) as console:
        assert "8.1 s to 16 s left" in console.text()
        assert "ready in" not in console.text()


async def test_the_connect_dialog_names_its_keys() -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press("a")
        await console.settle()
        assert "Cancel  esc" in console.text()


def test_slips_in_speculation_are_told() -> None:
    shape = {"steps": "999995", "draft_tokens": "999996"}
    settings = {f"speculation.{name}": value for name, value in shape.items()}
    with pytest.raises(EaglemonError, match="must be at most 1024"):
        ProfileStore.load().get("sglang-eagle3", settings)


def test_a_long_command_is_cut_visibly() -> None:
    assert shown("python -m x") == "python -m x"
    cut = shown("python -m sglang.launch_server " + "--flag " * 40)
    assert cut.endswith("…")
    assert len(cut) <= 80
