"""Theme files: what they may say, what is refused, and whether people can read the result."""

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from eaglemon.errors import ConfigError
from eaglemon.tui.theming import SEMANTIC_DEFAULTS, parse_theme, parse_themes, semantic_defaults
from tests.tui.console import THEMES

READABLE = 4.5
"""Least contrast of text on its background (WCAG AA)."""


@pytest.mark.parametrize("name", sorted(THEMES))
def test_own_themes_name_every_variable_and_can_be_read(name: str) -> None:
    theme = parse_theme(name, THEMES[name])
    assert theme.name == name
    assert set(theme.variables) == set(SEMANTIC_DEFAULTS)
    assert theme.background is not None
    grounds = [Color.parse(theme.background)]
    assert theme.panel is not None
    grounds.append(Color.parse(theme.panel))
    for variable, value in theme.variables.items():
        if not variable.startswith(("state-", "chart-", "quiet")):
            continue
        for ground in grounds:
            assert ratio(Color.parse(value), ground) >= READABLE, variable


def ratio(one: Color, other: Color) -> float:
    """Contrast ratio after WCAG 2."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: Color) -> float:
    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(value) for value in color.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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
