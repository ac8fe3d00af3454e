"""Acceptance from an engine's periodic log lines: the last source, where nothing else tells.

Lines cover intervals of their own, so that the first and the last reach beyond what is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eaglemon.core.phases import DecodeStats
from eaglemon.core.speculation import AcceptCounts, add_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesAcceptance:
    """What some log lines amount to."""

    accept_length: float
    lines: int
    counts: AcceptCounts | None = None
    """Sums, where every line tells what it counted."""


def acceptance_of(lines: Sequence[DecodeStats]) -> LinesAcceptance | None:
    """Return the acceptance over lines that tell one, ``None`` where none does.

    Lines with counts are added up. Otherwise a line weighs as much as requests ran: it covers a
    fixed number of verify passes, each a step of every running request.
    """
    told = [line for line in lines if line.accept_length is not None]
    if not told:
        return None
    if all(line.counts is not None for line in told):
        counts = add_counts(line.counts for line in told if line.counts is not None)
        if counts is not None and counts.accept_length is not None:
            return LinesAcceptance(
                accept_length=counts.accept_length, lines=len(told), counts=counts
            )
    weights = [max(1, line.running or 1) for line in told]
    weighed = sum(
        weight * line.accept_length
        for weight, line in zip(weights, told, strict=True)
        if line.accept_length is not None
    )
    return LinesAcceptance(accept_length=weighed / sum(weights), lines=len(told))
