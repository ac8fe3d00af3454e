"""What is on the screen in three themes and at three sizes: its colours, and whether it is read."""

import os
from pathlib import Path

import pytest
from textual.screen import ModalScreen

from eaglemon.core.hosts import LinkState
from eaglemon.core.views import HealthVerdict, PhaseState, ServerState
from eaglemon.tui import looks
from tests.tui import snapshots
from tests.tui.console import THEMES, Opened, opened
from tests.tui.styles import contrasts, style_map

FOLDER = Path(__file__).parent / "frames"
SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x50": (200, 50)}
IN_THREE = ("eaglemon-dark", "eaglemon-light", "high-contrast")
SCREENS = {"fleet": (), "server": ("2", "o", "2"), "host": ("h",), "kill": ("2", "K")}
MORE = {
    "log": ("2", "o", "l"),
    "failed": ("2", "j", "j", "o"),
    "launch": ("s",),
    "help": ("question_mark",),
    "profiles": ("P",),
}
"""At one size: their colours are those of the others."""
CASES = [(screen, size) for screen in SCREENS for size in SIZES]
CASES += [(screen, "120x40") for screen in MORE]
LEAST = 4.5
"""Least contrast of text (WCAG AA); that of the theme for high contrast is 7 (AAA)."""


def too_faint(console: Opened, theme: str) -> list[str]:
    """Return what is too hard to read; what a dialog puts into the background does not count."""
    least = 7.0 if theme == "high-contrast" else LEAST
    ground = "on " + THEMES[theme].split('surface = "')[1][:7]
    dialog = isinstance(console.screen, ModalScreen)
    found = [one for one in contrasts(console.app) if ground in one[1] or not dialog]
    return [f"{text}: {name}, {value:.1f}" for value, name, text in found if value < least]


@pytest.mark.parametrize(("screen", "size"), CASES)
async def test_styles_in_three_themes(screen: str, size: str) -> None:
    maps: list[str] = []
    faint: dict[str, list[str]] = {}
    async with opened(snapshots.FLEET, size=SIZES[size], logs=(snapshots.LOG,)) as console:
        await console.press(*{**SCREENS, **MORE}[screen])
        for theme in sorted(THEMES):
            console.app.use_theme(theme)
            await console.settle()
            if theme in IN_THREE:
                maps.append(f"== {theme}\n{style_map(console.app)}")
            faint[theme] = too_faint(console, theme)
    assert {theme: found for theme, found in faint.items() if found} == {}
    path = FOLDER / f"{screen}-{size}.styles"
    if os.environ.get("UPDATE_FRAMES"):
        path.write_text("\n".join(maps), encoding="utf-8")
    assert "\n".join(maps) == path.read_text(encoding="utf-8"), f"styles differ from {path.name}"


@pytest.mark.parametrize(
    "family",
    [
        [*looks.SERVER_LOOKS.values(), looks.STALLED],
        [*looks.LINK_LOOKS.values()],
        [*looks.PHASE_LOOKS.values()],
        [*looks.HEALTH_LOOKS.values()],
    ],
)
def test_states_differ_without_their_colours(family: list[looks.Look]) -> None:
    assert len({look.word for look in family}) == len(family)
    assert all(look.glyph and look.word for look in family)


def test_every_state_has_a_look() -> None:
    assert set(looks.SERVER_LOOKS) == set(ServerState)
    assert set(looks.LINK_LOOKS) == set(LinkState)
    assert set(looks.PHASE_LOOKS) == set(PhaseState)
    assert set(looks.HEALTH_LOOKS) == set(HealthVerdict)
