"""The table of actions: complete, without clashes, and every key acts or says why not."""

import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest
from textual.command import CommandPalette
from textual.content import Content

from eaglemon.core.views import ServerState, Snapshot
from eaglemon.tui.actions import ACTIONS, shown_key
from eaglemon.tui.deeds import Deeds
from eaglemon.tui.palette import ActionCommands
from eaglemon.tui.scene import Scene
from tests.tui import snapshots
from tests.tui.console import opened

ABOUT_A_SERVER = ["stop", "kill", "restart", "probe", "open", "log", "copy", "decisive", "draft"]


def test_every_action_has_a_deed_and_its_own_keys() -> None:
    for action in ACTIONS:
        assert callable(getattr(Deeds, action.id))
    keys = Counter(key for action in ACTIONS for key in action.keys)
    assert [key for key, count in keys.items() if count > 1] == []


def test_states_decide_what_can_be_done() -> None:
    by_id = {action.id: action for action in ACTIONS}
    for state in ServerState:
        server = replace(snapshots.ready(), state=state, pids=())
        scene = Scene(screen="fleet", server=server, hosts=1)
        assert (by_id["stop"].why_not(scene) is None) is (not state.ended)
        may = state.answering or state is ServerState.UNHEALTHY
        assert (by_id["probe"].why_not(scene) is None) is may
    assert by_id["start"].why_not(Scene(screen="fleet")) is not None
    assert by_id["start"].why_not(Scene(screen="fleet", hosts=1)) is not None
    assert by_id["start"].why_not(Scene(screen="fleet", hosts=1, profiles=1)) is None


@pytest.mark.parametrize("name", ABOUT_A_SERVER)
async def test_without_a_server_the_keys_say_so(name: str) -> None:
    action = next(action for action in ACTIONS if action.id == name)
    async with opened(snapshots.IDLE) as console:
        await console.press(action.keys[0])
        assert console.said == [
            "no server is selected: start one with s, or select one in the list"
        ]


async def test_no_server_is_acted_on_out_of_sight() -> None:
    async with opened(snapshots.FLEET, size=(80, 24)) as console:
        await console.press("K", "x")
        assert console.said == ["select a server first (2)"] * 2
        assert "K kill" not in console.text()
        await console.press("2")
        assert "K kill" in console.text()
        await console.press("h", "K")
        assert console.said[-1] == "select a server first (3)"
        await console.press("3", "K")
        assert "Kill k25-eagle3 on h200-a?" in console.text()


@pytest.mark.parametrize("key", ["s", "S", "K", "R", "t"])
async def test_read_only_changes_nothing_and_says_so(key: str) -> None:
    async with opened(snapshots.FLEET, read_only=True) as console:
        assert "READ-ONLY" in console.text()
        await console.press(key)
        assert "read-only" in console.said[0]
        assert console.fake.calls == []


async def test_nothing_can_be_started_without_hosts() -> None:
    async with opened(snapshots.EMPTY) as console:
        await console.press("s")
        assert console.said == ["no hosts: connect to one with a, or name one on the command line"]


@pytest.mark.parametrize("key", ["colon", "ctrl+p"])
async def test_the_palette_runs_actions(key: str) -> None:
    async with opened(snapshots.FLEET) as console:
        await console.press(key)
        assert isinstance(console.screen, CommandPalette)
        await console.press(*"freeze")
        # The palette collects its hits over time.
        deadline = time.monotonic() + 60
        while "key p" not in console.text() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        await console.press("enter")
        assert console.app.paused


async def test_the_palette_offers_every_action_with_its_key_or_reason() -> None:
    async with opened(snapshots.IDLE) as console:
        provider = ActionCommands(console.app.screen)
        hits = [hit async for hit in provider.discover()]
        found = {hit.text: hit.help for hit in hits}
        for hit in hits:
            assert isinstance(hit.prompt, Content)
            dim = any(span.style == "$quiet" for span in hit.prompt.spans)
            assert dim is (hit.help or "").startswith("not now: ")
        assert set(found) == {a.title for a in ACTIONS if a.id != "palette"}
        assert found["Quit: servers keep running"] == "key q"
        stop = found["Stop the server: TERM, time to end, KILL, wait for the memory"]
        assert stop is not None
        assert stop.startswith("not now: no server is selected")
        themes = {str(hit.text) async for hit in provider.search("Theme")}
        assert "Theme high-contrast" in themes
        assert "Theme nord" in themes


def test_keys_are_written_as_people_write_them() -> None:
    assert {shown_key(action) for action in ACTIONS} >= {"?", "/", ":", "[", "]", "esc", "K"}


async def test_the_key_line_shows_what_matters_here() -> None:
    async with opened(snapshots.FLEET) as console:
        line = console.text().splitlines()[-1]
        assert "/ filter" in line
        assert "esc back" not in line
        await console.press("o")
        line = console.text().splitlines()[-1]
        assert "/ filter" not in line
        assert "esc back" in line


async def test_the_key_line_hides_what_cannot_be_done() -> None:
    async with opened(snapshots.IDLE) as console:
        line = console.text().splitlines()[-1]
        assert "s start" in line
        assert "K kill" not in line
        assert "t probe" not in line


@pytest.mark.parametrize("snapshot", [snapshots.EMPTY, snapshots.FLEET])
@pytest.mark.parametrize("width", [40, 60, 80])
async def test_help_and_quit_are_always_in_the_key_line(snapshot: Snapshot, width: int) -> None:
    async with opened(snapshot, size=(width, 24)) as console:
        line = console.text().splitlines()[-1]
        assert "? help" in line
        assert "q quit" in line
