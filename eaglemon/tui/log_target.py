"""Where in a log somebody wants to go, as typed: a line number or a time. Pure."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

from eaglemon.core.startup import parse_stamp
from eaglemon.errors import UsageError

DAY_S = 86400.0
YEARLESS = 2000
"""Year of stamps that have none."""
_STAMP_COLUMNS = 48
"""An engine's stamp stands at the begin of its lines."""
_TIME = re.compile(r"(?:(?:(\d{4})-)?(\d\d)-(\d\d)[ T])?(\d\d):(\d\d)(?::(\d\d))?")


def line_number(text: str) -> int | None:
    """Return a line number from 0, ``None`` where the text is none."""
    digits = text.replace(",", "").replace(" ", "").replace("_", "")
    return int(digits) - 1 if digits.isdecimal() and int(digits) > 0 else None


def stamp_of(line: str) -> float | None:
    """Return the time of a line's own stamp, on a scale of which only differences mean anything."""
    return parse_stamp(line[:_STAMP_COLUMNS])


def wanted_stamp(text: str, last: float) -> float:
    """Return the time that was typed: without a day the last such time until ``last``.

    Raises ``UsageError``.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is neither a line nor a time",
            hint="such as 5000000, 14:02 or 11-29 14:02:05",
        )
    year, month, day, hour, minute, second = match.groups()
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise UsageError(f"there is no time {text!r}", hint="hours go to 23, minutes to 59")
    if day is None:
        at = last - last % DAY_S + int(hour) * 3600 + int(minute) * 60 + int(second or 0)
        return at if at <= last else at - DAY_S
    # Stamps without a year are all of the same one, and that is then the last one's too.
    known = datetime.fromtimestamp(last, UTC).year
    year = year if year and known != YEARLESS else known
    stamp = parse_stamp(f"{year}-{month}-{day} {hour}:{minute}:{second or '00'}")
    if stamp is None:
        raise UsageError(f"there is no time {text!r}")
    return stamp


def nothing_there(text: str, wanted: float, found: float | None, number: int) -> str:
    """Return that no line is of the time ``text``, where the one found is of a later one.

    ``wanted`` is that time, ``found`` the stamp of the line with this ``number`` from 0.
    """
    exact = text.count(":") > 1
    if found is None or found - wanted < (1.0 if exact else 60.0):
        return ""
    there = datetime.fromtimestamp(found, UTC)
    where = "the log begins" if number == 0 else "the next line is"
    return f"nothing at {text.strip()}: {where} at {there:%m-%d %H:%M:%S}"


class Bisection:
    """Finds the first line at or after a time by asking for few lines."""

    def __init__(self, wanted: float, count: int) -> None:
        self._wanted = wanted
        self._low, self._high = 0, count

    @property
    def found(self) -> int | None:
        """The line, once it is known."""
        return self._low if self._low >= self._high else None

    @property
    def asks(self) -> int:
        """The line to be looked at next."""
        return (self._low + self._high) // 2

    def look(self, line: Callable[[int], str | None], most: int) -> None:
        """Look at ``asks`` and, where it has no stamp, at those after it, ``most`` lines in all."""
        begin = self.asks
        for number in range(begin, min(begin + most, self._high)):
            text = line(number)
            stamp = None if text is None else stamp_of(text)
            if stamp is not None:
                if stamp < self._wanted:
                    self._low = number + 1
                else:
                    self._high = begin
                return
        self._high = begin
