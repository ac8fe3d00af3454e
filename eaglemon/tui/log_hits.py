"""Which line comes next in a search, while older parts of a log are still looked through. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from eaglemon.core import units

MOST_HITS = 100_000
"""Hits kept of the older part, the newest."""


class Hits:
    """The hits of one text: older ones told by the host, upwards, and newer ones counted here."""

    def __init__(self, text: str, *, until: int = 0, older: bool = False) -> None:
        """With ``older`` the host looks through the lines before number ``until``."""
        self.text = text
        self.until = until
        self.done = not older
        self.waits: int | None = None
        """The step that goes on once more is known."""
        self.words = ""
        """Which hit was gone to, of how many."""
        self.share: float | None = None
        """Of the older part, looked through so far."""
        self._older: list[int] = []
        self._cut = False

    def add(self, numbers: Sequence[int], share: float | None) -> None:
        """Take hits of the older part, the last line first."""
        self._older += numbers
        self.share = share
        self._cut = len(self._older) >= MOST_HITS

    def end(self, place: int | None, newer: Sequence[int]) -> None:
        """Take note that no more will come; ``place`` is the hit that was gone to."""
        self.done = True
        if place is not None and self.words:
            self.words = self._told(place, [*reversed(self._older), *newer])

    def fail(self) -> None:
        """Take note that the older part could not be looked through: it is begun again later."""
        self.done, self.until, self.waits, self.words = True, 0, None, ""
        self._older.clear()

    def step(self, place: int | None, step: int, newer: Sequence[int]) -> tuple[int | None, str]:
        """Return the next (1) or previous (-1) hit seen from ``place``, and how that went.

        ``newer`` are the hits from ``until`` on, in order. No hit and ``waits`` set means that
        more has to be looked through.
        """
        hits = [*reversed(self._older), *newer]
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
        if place is None:
            place = -1 if step > 0 else hits[-1] + 1 if hits else 0
        if step < 0:
            at = bisect_left(hits, place)
            return hits[at - 1] if at else None
        at = bisect_right(hits, place)
        # What lies between is known only when the look upwards has come past the place.
        known = self.done or at > 0
        return hits[at] if known and at < len(hits) else None
