"""Every key on the screens of what lives: each action has its effect, or says why it has none."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from eaglemon.core.hosts import LinkState
from eaglemon.tui.actions import ACTIONS
from eaglemon.tui.screens import draft, experiment, fleet, host, log, profiles, runs, server
from tests.tui import key_effects, snapshots
from tests.tui import test_tui_record_keys as records
from tests.tui.console import Opened, opened
from tests.tui.fake_experiments import FakeExperiments
from tests.tui.key_effects import LEAVES, press
from tests.tui.test_tui_draft import desk

WAYS = {"fleet": (), "server": ("o",), "host": ("h",), "draft": ("o", "d")}
EFFECTS: Mapping[str, str] = {
    **key_effects.EFFECTS,
    "check_draft": "AskFirst",
    "connect": "ConnectDialog",
    "next_tab": "ServerList VerticalScroll TextPanel Vertical LogView HostList",
    "previous_tab": "ServerList VerticalScroll TextPanel Vertical LogView HostList",
    "processes": "640",
    "retry": "trying a100-old again",
    "sort": "servers by ",
    "sort_back": "servers by ",
    "watch": "no servers of others on h200-a",
}
SCREENS = (
    draft.DraftScreen,
    experiment.ExperimentScreen,
    fleet.FleetScreen,
    host.HostScreen,
    log.LogScreen,
    profiles.ProfilesScreen,
    runs.RunsScreen,
    server.ServerScreen,
)


async def come_back(console: Opened, screen: str) -> None:
    """Leave what the key has opened."""
    depth = 1 if screen == "fleet" else 3 if screen == "draft" else 2
    for _ in range(5):
        scene = console.app.scene()
        here = scene.screen == screen and len(console.app.screen_stack) == depth
        if here and not scene.filtered:
            return
        await console.press("escape")
        if console.app.scene().screen == "fleet" and screen != "fleet":
            await console.press(*WAYS[screen])


@pytest.mark.parametrize("screen", WAYS)
async def test_every_key_has_its_effect_or_says_why_not(screen: str, tmp_path: Path) -> None:
    fake, files, _ = desk(tmp_path)
    pressed: set[str] = set()
    async with opened(
        snapshots.FLEET,
        logs=(snapshots.LOG,),
        fake=fake,
        files=files,
        experiments=FakeExperiments(),
    ) as console:
        await console.press(*WAYS[screen])
        await console.settle()
        for action in ACTIONS:
            if action.id in LEAVES:
                continue
            if not await press(console, action, EFFECTS):
                continue
            pressed.add(action.id)
            if action.id in {"pause", "processes"}:
                await console.press(action.keys[0])
            await come_back(console, screen)
            assert console.app.scene().screen == screen, action.id
    assert {"pause", "theme", "palette", "help"} <= pressed


async def test_the_keys_that_need_another_scene(tmp_path: Path) -> None:
    fake, files, _ = desk(tmp_path)
    down = snapshots.DOWN
    assert down.state is LinkState.DOWN
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("1", "G", "r")
        assert EFFECTS["retry"] in console.said[-1]
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("o", "d", "D", "y")
        await console.settle()
        await console.press("f")
        await console.settle()
        assert type(console.screen).__name__ == "AskFirst"


def test_no_screen_is_without_a_test_of_its_keys() -> None:
    assert {screen.NAME for screen in SCREENS} == {*WAYS, *records.WAYS}
