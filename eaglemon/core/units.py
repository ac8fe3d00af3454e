"""Figures as text: memory, durations, rates, shares and clock times for screens and tables.

Every function takes ``None`` for "not known" and gives ``-`` for it, never a zero.
Results have no padding; columns right-align them.
"""

from datetime import UTC, datetime, tzinfo

UNKNOWN = "-"

GIB = 1024**3
SEVERAL_TIMES = 1.0
"""A difference above it, 100 %, is told as that."""


def gib(size_bytes: float | None) -> str:
    """Return gibibytes with one decimal and no unit: ``112.4``."""
    return UNKNOWN if size_bytes is None else f"{size_bytes / GIB:.1f}"


def gib_pair(used_bytes: float | None, total_bytes: float | None) -> str:
    """Return used and total gibibytes, ``112.4/140.4``; the total alone keeps its place."""
    if used_bytes is None and total_bytes is None:
        return UNKNOWN
    return f"{gib(used_bytes)}/{gib(total_bytes)}"


def memory(size_bytes: float | None) -> str:
    """Return an amount of memory with its unit, ``899 GiB``, ``36.1 GiB`` or ``512 MiB``."""
    if size_bytes is None:
        return UNKNOWN
    if abs(size_bytes) < GIB:
        return f"{size_bytes / 1024**2:.0f} MiB"
    amount = size_bytes / GIB
    return f"{amount:.1f} GiB" if amount < 200 else f"{amount:.0f} GiB"


def duration(seconds: float | None) -> str:
    """Return a span of 0 or more in two units: ``0.4 s``, ``24 s``, ``5 m 31 s``, ``2 h 05 m``."""
    if seconds is None:
        return UNKNOWN
    # Rounding first keeps 59.6 s from showing as "60 s".
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def duration_range(low_s: float, high_s: float) -> str:
    """Return a range of seconds: ``20 s to 1 min 5 s``, one value where both read alike."""
    low, high = duration(low_s), duration(high_s)
    return low if low == high else f"{low} to {high}"


def span(seconds: float) -> str:
    """Return the length of a window as it is spoken of: ``5 s``, ``60 s``, ``15 m``, ``2 h``."""
    if seconds <= 120 or seconds % 60:
        return f"{seconds:.0f} s"
    return (
        f"{seconds / 60:.0f} m" if seconds < 7200 or seconds % 3600 else f"{seconds / 3600:.0f} h"
    )


def latency(seconds: float | None) -> str:
    """Return the time of one answer: ``0.4 ms``, ``12 ms``, ``1.25 s``."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.00995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s"


def age(seconds: float | None) -> str:
    """Return how old something is: ``0.4 s ago``."""
    return UNKNOWN if seconds is None else f"{duration(max(0.0, seconds))} ago"


def rate(per_second: float | None) -> str:
    """Return a rate with one decimal below ten thousand: ``141.2``, ``12040``."""
    if per_second is None:
        return UNKNOWN
    return f"{per_second:.1f}" if per_second < 9999.95 else f"{per_second:.0f}"


def percent(fraction: float | None) -> str:
    """Return a share as whole per cent: ``97 %``; 0.4 % stays visible as ``<1 %``."""
    if fraction is None:
        return UNKNOWN
    if 0 < fraction < 0.005:
        return "<1 %"
    return f"{fraction * 100:.0f} %"


def length(tokens: float | None) -> str:
    """Return an accept length, tokens per verify step: ``2.81``."""
    return UNKNOWN if tokens is None else f"{tokens:.2f}"


def count(number: int | None) -> str:
    """Return a whole number with its thousands apart: ``4 812``."""
    return UNKNOWN if number is None else f"{number:,}".replace(",", " ")


def clock(at: float | None, zone: tzinfo | None = None) -> str:
    """Return the time of day of unix seconds ``at``, in the local zone unless one is given."""
    if at is None:
        return UNKNOWN
    return datetime.fromtimestamp(at, tz=UTC).astimezone(zone).strftime("%H:%M:%S")


def index_ranges(indexes: tuple[int, ...]) -> str:
    """Return indexes with runs folded: ``0-3,6``; ``-`` for none."""
    if not indexes:
        return UNKNOWN
    ordered = sorted(set(indexes))
    parts: list[str] = []
    start = previous = ordered[0]
    for index in [*ordered[1:], None]:
        if index is not None and index == previous + 1:
            previous = index
            continue
        parts.append(str(start) if start == previous else f"{start}-{previous}")
        if index is not None:
            start = previous = index
    return ",".join(parts)


def plural(number: int, noun: str) -> str:
    """Return a count with its noun: ``1 request``, ``3 requests``, ``2 processes``."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{count(number)} {noun}{ending}"


def seen_from(smallest_effect: float) -> str:
    """Say which differences can be seen, from the smallest one (0.05 is 5 %)."""
    if smallest_effect > SEVERAL_TIMES:
        return "only differences of several times can be seen"
    if smallest_effect < 0.01:
        return "differences of less than 1 % can be seen"
    return f"differences from about {effect(smallest_effect)} can be seen"


def effect(share: float) -> str:
    """Return a difference by which something is faster, 0.05 as ``5 %``."""
    if share < 0.01:
        return "< 1 %"
    return "several times" if share > SEVERAL_TIMES else f"{share * 100:.0f} %"
