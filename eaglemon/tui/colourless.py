"""Pictures without any colour, for ``NO_COLOR``: bold, dim and reversed say what colours did."""

from functools import lru_cache

from rich.color import Color as TerminalColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_GREY_BELOW = 0.3
"""Saturation below which text is grey."""
_QUIET_BELOW = 8.0
"""Contrast to its ground below which grey text is quiet."""
_RAISED_FROM = 2.5
"""Contrast to the screen's ground from which on another ground, as of a button, is reversed."""


class Colourless(LineFilter):
    """Leaves out all colours; the terminal's own are what is drawn in."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments without colours."""
        return [
            segment
            if segment.control or segment.style is None
            else Segment(segment.text, _colourless(segment.style, background))
            for segment in segments
        ]


@lru_cache(maxsize=2048)
def _colourless(style: Style, background: Color) -> Style:
    ground = _seen(style.bgcolor) or background
    text = _seen(style.color)
    quiet = (
        text is not None
        and not style.bold
        and text.hsl.s < _GREY_BELOW
        and _contrast(ground, text) < _QUIET_BELOW
    )
    raised = _contrast(background, ground) >= _RAISED_FROM
    return Style(
        bold=style.bold,
        dim=style.dim or quiet or None,
        italic=style.italic,
        underline=style.underline,
        strike=style.strike,
        reverse=bool(style.reverse) != raised or None,
        link=style.link,
        meta=style.meta or None,
    )


def _seen(color: TerminalColor | None) -> Color | None:
    return None if color is None or color.triplet is None else Color(*color.triplet)


def _contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours as WCAG has it, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: Color) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in color.normalized
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
