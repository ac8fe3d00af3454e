"""Every key on the screens of what was written down: each action has its effect, or its reason."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from textual.widgets import Input

from eaglemon.core.views import LogBatch
from eaglemon.tui.actions import ACTIONS
from tests.tui import snapshots
from tests.tui.console import Opened, opened
from tests.tui.fake_experiments import RECORD, FakeExperiments, running

WAYS = {"log": ("l",), "runs": ("u",), "profiles": ("P",), "experiment": ("b",)}
LEAVES = {"back", "quit"}
"""They end what is tested: the last presses are theirs."""
EFFECTS: Mapping[str, str] = {
    "start": "LaunchScreen",
    "stop": "ConfirmStop",
    "kill": "ConfirmStop",
    "restart": "ConfirmStop",
    "ab": "CompareDialog",
    "probe": "ProbeDialog",
    "cancel": "cancelling: the servers that it started are stopped first",
    "open": "ServerScreen",
    "log": "LogScreen",
    "host": "HostScreen",
    "filter": "Input",
    "runs": "RunsScreen",
    "draft": "DraftScreen",
    "profiles": "ProfilesScreen",
    "copy": "copied ",
    "next_hit": "nothing to look for: type it after /",
    "previous_hit": "nothing to look for: type it after /",
    "only": "show only lines with this text",
    "jump": "a line number, or a time as the log has it",
    "select": "selecting: move, then y copies",
    "mark": "mark another one to compare them",
    "report": "the report of ab-",
    "resume": "ExperimentScreen",
    "sort": " by ",
    "sort_back": "Runs Profiles",
    "invert": "turned round",
    "pause": "PAUSED",
    "previous_tab": "VerticalScroll",
    "next_tab": "RunList ProfileList VerticalScroll",
    "theme": "theme ",
    "palette": "CommandPalette",
    "help": "HelpScreen",
}
"""What shows that an action did its work: a screen in front, the focus, or a text."""
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


def told(console: Opened) -> dict[str, str]:
    """Return the messages that have not gone yet, by what makes each unique."""
    return {one.identity: one.message for one in console.app._notifications}


def seen(console: Opened, said: list[str]) -> str:
    """Return what is in front, where the focus is, and what was said."""
    front, focus = type(console.screen).__name__, console.app.focused
    words = [front, *said, console.text()]
    if isinstance(focus, Input):
        words += [type(focus).__name__, focus.placeholder]
    return "\n".join([*words, type(focus).__name__])


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
            before, why_not = told(console), action.why_not(console.app.scene())
            await console.press(action.keys[0])
            said = [text for key, text in told(console).items() if key not in before]
            if why_not is not None:
                assert said == [why_not], action.id
                continue
            assert action.id in EFFECTS, f"{action.id} acts here: say in EFFECTS what shows it"
            now = seen(console, said)
            wanted = EFFECTS[action.id]
            parts = wanted.split() if wanted[0].isupper() and " " in wanted else [wanted]
            assert any(part in now for part in parts), f"{action.id}: {wanted} is not in\n{now}"
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
