"""Lines shown again and again in a terminal: only those that changed are written. Pure."""

import re
import unicodedata
from collections.abc import Sequence

_CLEAR, _TO_END_OF_LINE, _TO_END = "\x1b[H\x1b[J", "\x1b[K", "\x1b[J"
_COLOURED = re.compile(r"(\x1b\[\d+m)(.*)(\x1b\[0m)", re.DOTALL)


class LinePicture:
    """Keeps the lines that a terminal shows."""

    def __init__(self) -> None:
        self._shown: tuple[str, ...] = ()
        self._size = (0, 0)

    def changes(self, lines: Sequence[str], *, columns: int, rows: int) -> str:
        """Return what to write so that the terminal shows ``lines``, each in one colour.

        What has no room is left out: the ends of long lines, and lines below the last row, which
        then says how many. All is drawn where the terminal's size is another than before.
        """
        fits = [_fitting(line, columns) for line in lines]
        room = max(1, rows - 1)
        if len(fits) > room:
            more = len(fits) - room + 1
            fits[room - 1 :] = [_cut(f"... {more} lines more: enlarge the terminal", columns)]
        out = []
        if self._size != (columns, rows):
            self._size, self._shown = (columns, rows), ()
            out.append(_CLEAR)
        for number, line in enumerate(fits):
            if number >= len(self._shown) or self._shown[number] != line:
                out.append(f"\x1b[{number + 1};1H{line}{_TO_END_OF_LINE}")
        if out or len(fits) < len(self._shown):
            # Where the shell goes on afterwards.
            out.append(f"\x1b[{len(fits) + 1};1H{_TO_END}")
        self._shown = tuple(fits)
        return "".join(out)


def _fitting(line: str, columns: int) -> str:
    coloured = _COLOURED.fullmatch(line)
    begin, text, end = coloured.groups() if coloured else ("", line, "")
    flat = text.replace("\n", " ").expandtabs(4)
    return f"{begin}{_cut(flat, columns)}{end}"


def _cut(line: str, columns: int) -> str:
    """Return as much of ``line`` as has room in so many cells."""
    if line.isascii():
        return line[:columns]
    used = 0
    for index, character in enumerate(line):
        if not unicodedata.combining(character):
            used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > columns:
            return line[:index]
    return line
