"""Theme files: what they may say, what is refused, and whether people can read the result."""

import pytest
from rich._palettes import STANDARD_PALETTE
from rich.color import ColorSystem
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from eaglemon.errors import ConfigError
from eaglemon.tui.app import ConsoleApp
from eaglemon.tui.theming import (
    SEMANTIC_DEFAULTS,
    SIXTEEN_ON_DARK,
    SIXTEEN_ON_LIGHT,
    parse_theme,
    parse_themes,
    semantic_defaults,
)
from tests.tui import snapshots
from tests.tui.console import THEMES
from tests.tui.fake_console import FakeConsole
from tests.tui.styles import ratio

READABLE = 4.5
"""Least contrast of text on its background (WCAG AA)."""
BEST = 7.0
"""That of the theme for high contrast (WCAG AAA)."""


@pytest.mark.parametrize("name", sorted(THEMES))
def test_own_themes_name_every_variable_and_can_be_read(name: str) -> None:
    theme = parse_theme(name, THEMES[name])
    assert theme.name == name
    assert set(theme.variables) == set(SEMANTIC_DEFAULTS)
    grounds = {
        "background": theme.background,
        "surface": theme.surface,
        "panel": theme.panel,
        "cursor": theme.variables["cursor"],
    }
    texts = {
        variable: value
        for variable, value in theme.variables.items()
        if variable.startswith(("state-", "chart-", "quiet"))
    }
    texts |= {"foreground": theme.foreground or "", "accent": theme.accent or ""}
    least = BEST if name == "high-contrast" else READABLE
    for ground, behind in grounds.items():
        assert behind is not None
        for variable, value in texts.items():
            contrast = ratio(Color.parse(value), Color.parse(behind))
            assert contrast >= least, f"{variable} on {ground}: {contrast:.1f}"


@pytest.mark.parametrize("name", sorted(BUILTIN_THEMES))
def test_every_theme_of_textual_gets_our_variables(name: str) -> None:
    values = semantic_defaults(BUILTIN_THEMES[name])
    assert set(values) == set(SEMANTIC_DEFAULTS)
    for value in values.values():
        if not value.startswith(("auto", "ansi")):
            Color.parse(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("primary = ", "theme x: not valid toml"),
        ('name = "x"', "theme x: primary is missing"),
        ('primary = "#fff"\ncolour = "#000"', "theme x: unknown key 'colour'"),
        ('primary = "#fff"\nerror = "reddish"', "theme x: error = 'reddish' is no colour"),
        ('primary = "#fff"\nerror = 3', "theme x: error must be a colour in quotes"),
        ('primary = "#fff"\ndark = 1', "theme x: dark must be true or false"),
        ('primary = "#fff"\ntext_alpha = "a"', "theme x: text_alpha must be a number"),
        ('primary = "#fff"\nvariables = 1', "theme x: variables must be a table"),
        (
            'primary = "#fff"\n[variables]\nstate-ready = 1',
            "theme x: variables.state-ready must be text in quotes",
        ),
        (
            'primary = "#fff"\n[variables]\nstate-ready = "greenish"',
            "theme x: variables.state-ready = 'greenish' is no colour",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_theme("x", text)
    assert caught.value.message.startswith(message)


def test_a_small_theme_is_enough() -> None:
    theme = parse_theme("mine", 'primary = "#336699"\nluminosity_spread = 0.2\ndark = false')
    assert (theme.name, theme.dark, theme.luminosity_spread) == ("mine", False, 0.2)


def test_bad_files_do_not_take_the_good_ones_along() -> None:
    themes, problems = parse_themes({"bad": "x", "good": 'primary = "#fff"'})
    assert [theme.name for theme in themes] == ["good"]
    assert len(problems) == 1


@pytest.mark.parametrize("colours", [SIXTEEN_ON_DARK, SIXTEEN_ON_LIGHT])
def test_sixteen_colours_are_drawn_as_they_are_and_states_differ(colours: dict[str, str]) -> None:
    known = {tuple(STANDARD_PALETTE[number]) for number in range(16)}
    assert {tuple(Color.parse(colour).rgb) for colour in colours.values()} <= known
    states = [colour for name, colour in colours.items() if name.startswith("state-")]
    assert len(set(states)) == len(states)
    assert set(colours) == set(SEMANTIC_DEFAULTS)


@pytest.mark.parametrize("theme", ["eaglemon-dark", "eaglemon-light", "textual-dark"])
async def test_a_terminal_of_sixteen_colours_tells_warnings_from_failures(theme: str) -> None:
    console = FakeConsole(snapshots.FLEET)
    app = ConsoleApp(console, themes=THEMES, theme=theme, few_colours=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        drawn = {
            word: segment.style.color.downgrade(ColorSystem.STANDARD).number
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            for word in ("STALE", "DOWN", "UP", "STARTING")
            if word in segment.text and segment.style is not None and segment.style.color
        }
    assert set(drawn) == {"STALE", "DOWN", "UP", "STARTING"}
    assert len(set(drawn.values())) == len(drawn)
