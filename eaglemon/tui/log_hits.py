"""Which line comes next in a search, while older parts of a log are still looked through. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from eaglemon.core import units

MOST_HITS = 100_000
"""Hits kept of the older part, the newest."""
_BEYOND = 1 << 62
"""After every line."""


class Hits:
    """The hits of one text: older ones told by the host, upwards, and newer ones counted here."""

    def __init__(self, text: str, *, until: int = 0, offset: int = 0, older: bool = False) -> None:
        """With ``older`` the host looks through the lines before number ``until``.

        That line begins at the byte ``offset``.
        """
        self.text = text
        self.until = until
        self.offset = offset
        self.done = not older
        self.waits: int | None = None
        """The step that goes on once more is known."""
        self.words = ""
        """Which hit was gone to, of how many."""
        self.share: float | None = None
        """Of the older part, looked through so far."""
        self._older: list[int] = []
        self._below = 0
        """Lines before this number were looked through."""
        self._between: list[int] = []
        """Hits that are told now, all after those in ``_older``."""
        self._cut = False

    def add(self, numbers: Sequence[int], share: float | None) -> None:
        """Take hits of the older part, the last line first."""
        self._between += numbers
        self.share = share
        self._cut = self._cut or len(self._between) >= MOST_HITS

    def end(self, place: int | None, newer: Sequence[int]) -> None:
        """Take note that no more will come; ``place`` is the hit that was gone to."""
        self.done = True
        self._older[:0] = self._between
        self._between = []
        if place is not None and self.words:
            self.words = self._told(place, [*reversed(self._older), *newer])

    def widen(self, until: int, offset: int) -> None:
        """Let the host look through the lines between ``self.until`` and ``until`` too."""
        self.done, self.share, self._below = False, None, self.until
        self.until, self.offset = until, offset

    def fail(self) -> None:
        """Take note that the older part could not be looked through: it is begun again later."""
        self.done, self.until, self.offset, self.waits, self.words = True, 0, 0, None, ""
        self._older.clear()
        self._between.clear()
        self._below = 0

    def step(self, place: int | None, step: int, newer: Sequence[int]) -> tuple[int | None, str]:
        """Return the next (1) or previous (-1) hit seen from ``place``, and how that went.

        ``newer`` are the hits from ``until`` on, in order. No hit and ``waits`` set means that
        more has to be looked through.
        """
        hits = [*reversed(self._older), *reversed(self._between), *newer]
        self.waits = None
        found = self._next(hits, place, step)
        if found is None and not self.done:
            self.waits = step
            return None, "looking through the earlier lines"
        if not hits:
            return None, f"no line contains {self.text!r}"
        if found is None:
            found = hits[-1] if step < 0 else hits[0]
        self.words = self._told(found, hits)
        return found, self.words

    def _told(self, found: int, hits: Sequence[int]) -> str:
        if not self.done or self._cut:
            return f"hit on line {units.count(found + 1)}"
        return f"hit {units.count(bisect_left(hits, found) + 1)} of {units.count(len(hits))}"

    @property
    def is_waiting(self) -> bool:
        """More has to be looked through before it is known where to go."""
        return self.waits is not None

    def _next(self, hits: Sequence[int], place: int | None, step: int) -> int | None:
        if step < 0:
            place = _BEYOND if place is None else place
            at = bisect_left(hits, place) - 1
            return hits[at] if at >= 0 and self._is_known(hits[at], place) else None
        place = -1 if place is None else place
        at = bisect_right(hits, place)
        return hits[at] if at < len(hits) and self._is_known(place, hits[at]) else None

    def _is_known(self, low: int, high: int) -> bool:
        """Tell whether no line between two is still to be looked through."""
        reached = self._between[-1] if self._between else self.until
        return self.done or high <= self._below or low >= reached
