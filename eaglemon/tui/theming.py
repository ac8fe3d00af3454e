"""Themes: a TOML text becomes a Textual theme; semantic variables have defaults in every theme.

A theme file is a palette and an optional ``[variables]`` table; structure lives in the style
sheet. Finding theme files is the caller's business.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields

from textual.color import Color, ColorParseError
from textual.theme import Theme

from eaglemon.errors import ConfigError

SEMANTIC_DEFAULTS: dict[str, str] = {
    "state-ready": "$text-success",
    "state-busy": "$text-accent",
    "state-starting": "$text-primary",
    "state-warning": "$text-warning",
    "state-failed": "$text-error",
    "state-ended": "$foreground 62%",
    "memory-low": "$success",
    "memory-middle": "$warning",
    "memory-high": "$error",
    "bar-track": "$foreground 12%",
    "quiet": "$foreground 62%",
    "line": "$foreground 22%",
    "line-focus": "$primary",
    "cursor": "$primary 28%",
    "chart-speed": "$text-primary",
    "chart-accept": "$text-accent",
    "accept-bar": "$accent 70%",
}
"""Our own names in terms of the variables that every theme has."""

_RED, _GREEN, _BROWN, _BLUE, _MAGENTA, _CYAN = (
    "#aa0000",
    "#00aa00",
    "#aa5500",
    "#0000aa",
    "#aa00aa",
    "#00aaaa",
)
_BRIGHT_RED, _BRIGHT_GREEN, _YELLOW = "#ff5555", "#55ff55", "#ffff55"
_BRIGHT_MAGENTA, _BRIGHT_CYAN, _SILVER, _GREY = "#ff55ff", "#55ffff", "#aaaaaa", "#555555"
SIXTEEN_ON_DARK: dict[str, str] = {
    "state-ready": _BRIGHT_GREEN,
    "state-busy": _BRIGHT_MAGENTA,
    "state-starting": _BRIGHT_CYAN,
    "state-warning": _YELLOW,
    "state-failed": _BRIGHT_RED,
    "state-ended": _SILVER,
    "memory-low": _CYAN,
    "memory-middle": _BROWN,
    "memory-high": _RED,
    "quiet": _SILVER,
    "line": _GREY,
    "line-focus": _BRIGHT_CYAN,
    "bar-track": _GREY,
    "cursor": _BLUE,
    "chart-speed": _BRIGHT_CYAN,
    "chart-accept": _YELLOW,
    "accept-bar": _BROWN,
}
"""What stands for our names where a terminal has 16 colours: the nearest of them are too few.

Each is one of the 16, so that it is drawn as such. Orange and red would both be red there.
"""
SIXTEEN_ON_LIGHT: dict[str, str] = {
    **SIXTEEN_ON_DARK,
    "state-ready": _GREEN,
    "state-busy": _CYAN,
    "state-starting": _BLUE,
    "state-warning": _MAGENTA,
    "state-failed": _RED,
    "state-ended": _GREY,
    "quiet": _GREY,
    "line": _SILVER,
    "line-focus": _BLUE,
    "bar-track": _SILVER,
    "cursor": _SILVER,
    "chart-speed": _BLUE,
    "chart-accept": _MAGENTA,
}

_COLOURS = (
    "primary",
    "secondary",
    "warning",
    "error",
    "success",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "boost",
)
_NUMBERS = ("luminosity_spread", "text_alpha")


def parse_theme(name: str, text: str) -> Theme:
    """Return the theme that a TOML text describes.

    ``name`` is the file's name without its ending and is used where the text gives none.
    Raises ``ConfigError`` naming the theme and the key.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"theme {name}: not valid toml: {error}") from error
    known = {field.name for field in fields(Theme)}
    for key in table:
        if key not in known:
            raise ConfigError(
                f"theme {name}: unknown key {key!r}", hint=f"known: {', '.join(sorted(known))}"
            )
    variables = table.get("variables", {})
    if not isinstance(variables, dict):
        raise ConfigError(f"theme {name}: variables must be a table")
    primary = table.get("primary")
    if not isinstance(primary, str):
        raise ConfigError(f"theme {name}: primary is missing", hint='add primary = "#rrggbb"')
    colours = {key: _colour(name, key, table[key]) for key in _COLOURS if key in table}
    numbers = {key: _number(name, key, table[key]) for key in _NUMBERS if key in table}
    dark = table.get("dark", True)
    if not isinstance(dark, bool):
        raise ConfigError(f"theme {name}: dark must be true or false")
    theme = Theme(
        name=str(table.get("name", name)),
        primary=primary,
        dark=dark,
        variables={str(key): _variable(name, str(key), value) for key, value in variables.items()},
    )
    for key, given in [*colours.items(), *numbers.items()]:
        setattr(theme, key, given)
    return theme


def parse_themes(texts: Mapping[str, str]) -> tuple[list[Theme], list[ConfigError]]:
    """Return the themes that could be read, and what is wrong with the others."""
    themes: list[Theme] = []
    problems: list[ConfigError] = []
    for name, text in texts.items():
        try:
            themes.append(parse_theme(name, text))
        except ConfigError as error:
            problems.append(error)
    return themes, problems


def semantic_defaults(theme: Theme) -> dict[str, str]:
    """Return values for our variables that suit ``theme``, as plain colours."""
    generated = theme.to_color_system().generate()
    return {name: _resolve(value, generated) for name, value in SEMANTIC_DEFAULTS.items()}


def _resolve(value: str, generated: Mapping[str, str]) -> str:
    name, _, alpha = value.partition(" ")
    base = generated[name.removeprefix("$")]
    # Colours of the terminal's own palette cannot be blended: nobody knows what they look like.
    if not alpha or base.startswith("ansi_"):
        return base
    colour = Color.parse(base)
    background = Color.parse(generated["background"])
    share = int(alpha.removesuffix("%")) / 100
    # A blended, opaque colour also works where the text style cannot be translucent.
    return background.blend(colour, share, alpha=1.0).hex


def _colour(theme: str, key: str, value: object) -> str:
    if isinstance(value, str):
        try:
            Color.parse(value)
        except ColorParseError as error:
            raise ConfigError(f"theme {theme}: {key} = {value!r} is no colour") from error
        return value
    raise ConfigError(f"theme {theme}: {key} must be a colour in quotes")


def _variable(theme: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"theme {theme}: variables.{key} must be text in quotes")
    return _colour(theme, f"variables.{key}", value) if key in SEMANTIC_DEFAULTS else value


def _number(theme: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"theme {theme}: {key} must be a number")
    return float(value)
