"""Pictures for terminals and fonts without box drawing, blocks, braille and signs: ASCII alone."""

import unicodedata

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_SIGNS = {
    "│": "|", "┃": "|", "║": "|", "┤": "|", "├": "|", "▏": "|", "▎": "|", "▍": "|", "▌": "#",
    "─": "-", "━": "-", "═": "-", "└": "+", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "┌": "+",
    "┐": "+", "┘": "+", "┼": "+", "▋": "#", "▊": "#", "▉": "#", "█": "#", "▔": "-", "▁": "_",
    "▂": "_", "▃": ".", "▄": "-", "▅": "=", "▆": "+", "▇": "*", "●": "*", "◆": "@", "▲": "!",
    "▼": "v", "▽": "v", "■": "=", "✗": "x", "✓": "+", "○": "o", "◔": "o", "◑": "o", "◕": "o",
    "◌": "o", "▶": ">", "▸": ">", "▾": "v", "·": ".", "…": "~", "°": " ", "→": ">",
    "\N{MULTIPLICATION SIGN}": "x",
    "•": "*", "↑": "^", "↓": "v", "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-",
}  # fmt: skip
_WIDE = 2


def ascii_text(text: str) -> str:
    """Return ``text`` in ASCII, each character in as many cells as before."""
    if text.isascii():
        return text
    return "".join(map(_ascii_character, text))


def _ascii_character(character: str) -> str:
    if character.isascii():
        return character
    if 0x2800 <= ord(character) <= 0x28FF:
        return " " if character == "\u2800" else "*"
    sign = _SIGNS.get(character)
    if sign is not None:
        return sign
    cells = cell_len(character)
    plain = unicodedata.normalize("NFKD", character)[:1]
    return plain if cells == 1 and plain.isascii() else "?" * min(_WIDE, cells)


class AsciiOnly(LineFilter):
    """Replaces whatever a terminal without UTF-8 would show as rubbish."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments in ASCII."""
        del background
        return [
            segment if segment.control else Segment(ascii_text(segment.text), segment.style)
            for segment in segments
        ]
