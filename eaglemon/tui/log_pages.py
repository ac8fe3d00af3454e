"""A log of any length by line number: places where lines begin, and pages fetched lately. Pure."""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence

MAX_PAGES = 64
"""Pages kept; one holds about 64 KiB of the log."""
STEP_BYTES = 64 << 10
UNREAD = "…"
"""Stands for a line that is being fetched."""
HIDDEN = "… (behind a line too long to be read here)"


class LogPages:
    """Line numbers count from 0; a page is what lies between two places."""

    def __init__(self, places: Iterable[tuple[int, int]], *, first: int) -> None:
        """``places`` are (byte offset, line number), the first (0, 0), the last at line ``first``.

        From ``first`` on the lines came here as they were written.
        """
        self.first = first
        self._offsets = array("Q")
        self._lines = array("Q")
        self._end = 0
        self._kept: OrderedDict[int, Sequence[str]] = OrderedDict()
        for offset, line in places:
            self._offsets.append(offset)
            self._lines.append(line)
            self._end = offset

    def grow(self, offset: int, line: int, end: int) -> None:
        """Take note that line ``line`` begins at ``offset``, and that the log was read to ``end``.

        A page that is not whole yet is forgotten: it grows.
        """
        if offset >= self._offsets[-1] + STEP_BYTES and line > self._lines[-1]:
            self._offsets.append(offset)
            self._lines.append(line)
        self._kept.pop(len(self._offsets) - 1, None)
        self._end = max(self._end, end)

    def page_of(self, line: int) -> int:
        """Return the page with a line."""
        return max(0, bisect_right(self._lines, line) - 1)

    def span(self, page: int) -> tuple[int, int]:
        """Return the bytes of a page: begin and end."""
        after = page + 1
        end = self._offsets[after] if after < len(self._offsets) else self._end
        return self._offsets[page], end

    def place_from(self, line: int) -> tuple[int, int]:
        """Return the first place at or after a line, the last one where there is none."""
        at = min(bisect_left(self._lines, line), len(self._lines) - 1)
        return self._offsets[at], self._lines[at]

    def put(self, page: int, lines: Sequence[str]) -> None:
        """Keep a page; the one not looked at for longest goes."""
        self._kept[page] = lines
        self._kept.move_to_end(page)
        while len(self._kept) > MAX_PAGES:
            self._kept.popitem(last=False)

    def line(self, number: int) -> str | None:
        """Return a line, ``None`` while its page is not here."""
        page = self.page_of(number)
        kept = self._kept.get(page)
        if kept is None:
            return None
        self._kept.move_to_end(page)
        place = number - self._lines[page]
        return kept[place] if place < len(kept) else HIDDEN
