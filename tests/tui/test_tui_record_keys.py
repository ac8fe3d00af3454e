"""Every key on the screens of what was written down: each action has its effect, or its reason."""

from pathlib import Path

import pytest

from eaglemon.core.views import LogBatch
from eaglemon.tui.actions import ACTIONS
from tests.tui import snapshots
from tests.tui.console import Opened, opened
from tests.tui.fake_experiments import RECORD, FakeExperiments, running
from tests.tui.key_effects import EFFECTS, LEAVES, press

WAYS = {"log": ("l",), "runs": ("u",), "profiles": ("P",), "experiment": ("b",)}
ELSEWHERE = {
    "connect",
    "decisive",
    "check_draft",
    "fix_draft",
    "edit",
    "processes",
    "retry",
    "watch",
}
"""Refused on all of these screens, as they are opened here: other tests press them."""


def fake_for(screen: str) -> FakeExperiments:
    fake = FakeExperiments(running()) if screen == "experiment" else FakeExperiments()
    fake.runs = [("ab-cut", RECORD.names), ("ab-1", RECORD.names)]
    return fake


async def come_back(console: Opened, screen: str) -> None:
    """Leave what the key has opened."""
    for _ in range(4):
        scene = console.app.scene()
        if scene.screen == screen and len(console.app.screen_stack) == 2 and not scene.filtered:
            return
        await console.press("escape")
        if console.app.scene().screen == "fleet":
            await console.press(*WAYS[screen])


@pytest.mark.parametrize("screen", WAYS)
async def test_every_key_has_its_effect_or_says_why_not(
    screen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = LogBatch(lines=tuple(f"line {n} decode" for n in range(200)), next_offset=1)
    async with opened(snapshots.FLEET, logs=(log,), experiments=fake_for(screen)) as console:
        await console.press(*WAYS[screen])
        for action in ACTIONS:
            if action.id in LEAVES:
                continue
            if not await press(console, action, EFFECTS):
                continue
            if action.id == "pause":
                await console.press("p")
            await come_back(console, screen)
            assert console.app.scene().screen == screen, action.id
        # The first one may end selecting, or take marks away.
        await console.press("escape", "escape")
        assert console.app.scene().screen == "fleet"
        # Where an experiment was cancelled, b asks for a new one.
        await console.press(*(() if screen == "experiment" else WAYS[screen]), "q")
        # In the middle of an experiment it asks first.
        assert console.app._exit or console.app.scene().experimenting


def test_every_action_is_pressed_somewhere() -> None:
    assert {action.id for action in ACTIONS} == {*EFFECTS, *LEAVES, *ELSEWHERE}
