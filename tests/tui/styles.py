"""The colours on the screen as text: which words are drawn in which style, to be read in a diff."""

import unicodedata
from collections.abc import Iterator

from rich.style import Style
from textual.app import App
from textual.color import Color

_MOST_TEXTS = 6
_GRAPHICS = frozenset({"So", "Sm", "Sk"})


def drawn(app: App[None]) -> Iterator[tuple[Style, str]]:
    """Yield each piece of text on the screen with its style."""
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            if segment.text.strip() and segment.style is not None:
                yield segment.style, segment.text.strip()


def is_graphic(text: str) -> bool:
    """Tell whether a piece is all lines, blocks and dots: no words to be read."""
    return all(
        character.isspace()
        or (unicodedata.category(character) in _GRAPHICS and ord(character) >= 0x2500)
        or character in "·─"
        for character in text
    )


def style_name(style: Style) -> str:
    """Return a style in one line: colour, ground, attributes."""
    parts = [_hex(style.color), "on", _hex(style.bgcolor)]
    parts += [word for word in ("bold", "dim", "reverse", "underline") if getattr(style, word)]
    return " ".join(parts)


def style_map(app: App[None]) -> str:
    """Return the styles on the screen, each with the first few texts in it."""
    texts: dict[str, dict[str, None]] = {}
    for style, text in drawn(app):
        word = "(lines)" if is_graphic(text) else " ".join(text.split())[:24]
        texts.setdefault(style_name(style), {})[word] = None
    lines = []
    for name in sorted(texts):
        shown = list(texts[name])
        more = f" | +{len(shown) - _MOST_TEXTS}" if len(shown) > _MOST_TEXTS else ""
        lines.append(f"{name}: {' | '.join(shown[:_MOST_TEXTS])}{more}")
    return "\n".join(lines) + "\n"


def contrasts(app: App[None]) -> Iterator[tuple[float, str, str]]:
    """Yield the contrast of each piece that is to be read, its style and its text."""
    for style, text in drawn(app):
        if is_graphic(text) or style.color is None or style.bgcolor is None:
            continue
        front, ground = _color(style.color), _color(style.bgcolor)
        if front is not None and ground is not None:
            yield ratio(front, ground), style_name(style), text


def ratio(one: Color, other: Color) -> float:
    """Contrast ratio after WCAG 2."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Color) -> float:
    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(value) for value in color.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _color(color: object) -> Color | None:
    triplet = getattr(color, "triplet", None)
    return None if triplet is None else Color(*triplet)


def _hex(color: object) -> str:
    found = _color(color)
    return "default" if found is None else found.hex.lower()
