"""Problems: what validation returns instead of a yes or no."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a problem matters: errors stop a launch, warnings are shown."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a configuration, a command line or a host, with its fix."""

    where: str
    """What it is about: ``flags.mem-fraction-static``, ``port 30000``, ``/models/draft``."""
    message: str
    hint: str = ""
    severity: Severity = Severity.ERROR
    slug: str = ""
    """A stable name for scripts, e.g. ``topk1-draft-tokens``; empty where none is defined."""

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


def errors_among(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems that stop a launch."""
    return tuple(problem for problem in problems if problem.severity is Severity.ERROR)


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that ``name`` is all but certainly meant to be.

    One slip of the finger in a short name, two in one from six characters on; underscores count
    as dashes. Names of up to three characters are too like one another to tell.
    """
    bare = name.lower().replace("_", "-")
    if len(bare) < 4:
        return None
    most = 1 if len(bare) < 6 else 2
    near = difflib.get_close_matches(bare, sorted(known), n=3, cutoff=0.7)
    return next((one for one in near if _slips(bare, one) <= most), None)


def _slips(left: str, right: str) -> int:
    """Count characters left out, added, changed or swapped with the next."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(right, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint naming the nearest known name, or the known names when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    if not names:
        return ""
    shown = ", ".join(names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"known: {shown}{more}"
