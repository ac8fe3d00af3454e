"""Settings to try after a failure: what the advice of a remedy comes to for one profile. Pure."""

import re
from collections.abc import Callable, Sequence

from eaglemon.core.profiles import Profile

_STEP = 0.05
_LEAST_FRACTION, _MOST_FRACTION = 0.3, 0.95
_TOLD_LENGTH = re.compile(r"derived context_length \((\d+)\)|maximum model length is (\d+)")
_PAIR = 2
_FRACTIONS = ("mem-fraction-static", "gpu-memory-utilization")
_GRAPH_SIZES = ("cuda-graph-max-bs-decode", "cuda-graph-max-bs", "max-cudagraph-capture-size")
_LENGTHS = ("context-length", "max-model-len")

Change = Callable[[Profile, str], str | None]
"""Returns ``NAME=VALUE`` for a profile and the line that decided, ``None`` where it cannot."""


def changes_for(cause: str, remedy: str, line: str, profile: Profile) -> tuple[str, ...]:
    """Return the settings, as ``--set`` takes them, that follow the first advice that comes to any.

    ``remedy`` is what is advised, without what the profile's settings refute, ``line`` the line of
    the log that decided. Empty where the advice is not about a value that can be told.
    """
    if cause == "port-in-use":
        return (f"port={profile.port + 1}",)
    for advice, change in _CHANGES:
        told = change(profile, line) if advice in remedy else None
        if told is not None:
            return (told,)
    return ()


def _set_in(profile: Profile, names: Sequence[str]) -> tuple[str, float] | None:
    for name in names:
        value = profile.flags.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return name, float(value)
        if isinstance(value, str):
            try:
                return name, float(value)
            except ValueError:
                continue
    return None


def _fraction(step: float) -> Change:
    def change(profile: Profile, line: str) -> str | None:
        del line
        now = _set_in(profile, _FRACTIONS)
        if now is None:
            return None
        name, value = now
        wanted = round(min(max(value + step, _LEAST_FRACTION), _MOST_FRACTION), 2)
        return None if wanted == value else f"{name}={wanted:g}"

    return change


def _smaller_graphs(profile: Profile, line: str) -> str | None:
    del line
    now = _set_in(profile, _GRAPH_SIZES)
    return None if now is None or now[1] < _PAIR else f"{now[0]}={int(now[1]) // 2}"


def _told_length(profile: Profile, line: str) -> str | None:
    now = _set_in(profile, _LENGTHS)
    found = _TOLD_LENGTH.search(line)
    if now is None or found is None:
        return None
    length = next(group for group in found.groups() if group)
    return None if float(length) == now[1] else f"{now[0]}={length}"


_CHANGES: tuple[tuple[str, Change], ...] = (
    ("raise mem-fraction-static", _fraction(_STEP)),
    ("raise gpu-memory-utilization", _fraction(_STEP)),
    ("lower the memory fraction", _fraction(-_STEP)),
    ("lower mem-fraction-static", _fraction(-_STEP)),
    ("lower gpu-memory-utilization", _fraction(-_STEP)),
    ("lower cuda-graph-max-bs", _smaller_graphs),
    ("the graph batch sizes", _smaller_graphs),
    ("lower context-length", _told_length),
    ("lower max-model-len", _told_length),
    ("the context length", _told_length),
    (
        "cuda-graph-backend-prefill disabled",
        lambda profile, line: "cuda-graph-backend-prefill=disabled",
    ),
)
"""An advice, and the change of a setting that follows it."""
