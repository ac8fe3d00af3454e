"""When to stop starting a server that keeps failing."""

from collections.abc import Iterable

LOOP_EXITS = 3
LOOP_WINDOW_S = 600.0


def is_crash_loop(ends: Iterable[float], now: float) -> bool:
    """Tell whether ``LOOP_EXITS`` ends (seconds of one clock) lie within the last ten minutes."""
    return sum(now - LOOP_WINDOW_S <= end <= now for end in ends) >= LOOP_EXITS
