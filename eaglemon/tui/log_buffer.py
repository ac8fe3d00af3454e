"""The last lines of a log, those among them that a filter lets through, and search. Pure."""

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from eaglemon.core import units
from eaglemon.tui.columns import plain

LONGEST_LINE = 2_000
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def clean(line: str) -> str:
    """Return a log line without terminal sequences and control characters, cut when endless."""
    if len(line) <= LONGEST_LINE and line.isprintable():
        return line or " "
    text = plain(_ANSI.sub("", line.rstrip("\r\n")))
    if len(text) > LONGEST_LINE:
        return f"{text[:LONGEST_LINE]}… ({units.count(len(text))} characters)"
    return text or " "


def matches(text: str, wanted: str) -> bool:
    """Tell whether ``wanted`` is in ``text``; without capitals in it, in any case."""
    return wanted in (text.lower() if wanted.islower() else text)


class LogBuffer:
    """At most ``max_lines`` cleaned lines; ``shown`` are those that contain ``only``."""

    def __init__(self, max_lines: int) -> None:
        self.max_lines = max_lines
        self.lines: list[str] = []
        self.shown: list[str] = self.lines
        self.only = ""
        self.total = 0
        """Lines taken so far."""
        self.width = 0
        """Cells of the widest line so far."""

    def add(self, lines: Sequence[str]) -> int:
        """Take cleaned lines and return how many shown ones were pushed out.

        A line that the filter let through stays until ``max_lines`` newer ones are shown.
        """
        self.total += len(lines)
        new = lines[-self.max_lines :]
        self.widen(new)
        self.lines += new
        gone = max(0, len(self.lines) - self.max_lines)
        del self.lines[:gone]
        if not self.only:
            return gone
        self.shown += [line for line in new if matches(line, self.only)]
        out = max(0, len(self.shown) - self.max_lines)
        del self.shown[:out]
        return out

    def add_older(self, lines: Sequence[str]) -> int:
        """Put cleaned lines that the filter let through before all others; return how many fit."""
        room = self.max_lines - len(self.shown)
        fits = lines[max(0, len(lines) - room) :] if room > 0 else []
        self.shown[:0] = fits
        self.widen(fits)
        return len(fits)

    def widen(self, lines: Sequence[str]) -> None:
        """Take note of lines that will be shown."""
        self.width = max(self.width, max(map(_width, lines), default=0))

    def clear(self) -> None:
        """Forget all lines."""
        self.lines.clear()
        self.shown.clear()
        self.total = self.width = 0

    def filter(self, only: str) -> None:
        """Show only lines that contain ``only``; empty shows all."""
        self.only = only
        self.shown = [line for line in self.lines if matches(line, only)] if only else self.lines

    def hits(self, wanted: str) -> list[int]:
        """Return the places among the shown lines that contain ``wanted``."""
        return [n for n, line in enumerate(self.shown) if wanted and matches(line, wanted)]

    def last(self, line: str) -> int | None:
        """Return the last place of a whole line, or of the first line that begins like it."""
        for number in range(len(self.shown) - 1, -1, -1):
            text = self.shown[number]
            if text == line or (len(line) > 20 and line in text):
                return number
        return None


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def cleaned(lines: Iterable[str]) -> list[str]:
    """Return cleaned lines."""
    return [clean(line) for line in lines]
