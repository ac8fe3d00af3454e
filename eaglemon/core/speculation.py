"""Acceptance figures with one definition each (see docs/definitions.md).

Notation: a verify step checks ``draft_tokens - 1`` proposed tokens and always yields one more,
the bonus token. ``accept length = generated tokens / verify steps``, sum over sum.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptCounts:
    """Sums from which acceptance is derived; they add up over requests and windows.

    ``accepted`` counts accepted draft tokens without the bonus tokens.
    """

    steps: int
    """Verify steps (vLLM: drafts)."""
    accepted: int
    proposed: int | None = None
    per_position: tuple[int, ...] = ()
    """Steps in which the first i+1 draft tokens were all accepted; empty where not told."""

    def __add__(self, other: "AcceptCounts") -> "AcceptCounts":
        """Add two sums; positions stay known only where both sides tell them."""
        proposed = (
            None
            if self.proposed is None or other.proposed is None
            else self.proposed + other.proposed
        )
        return AcceptCounts(
            steps=self.steps + other.steps,
            accepted=self.accepted + other.accepted,
            proposed=proposed,
            per_position=_add_positions(self, other),
        )

    def since(self, earlier: "AcceptCounts") -> "AcceptCounts | None":
        """What was counted after ``earlier``; ``None`` when the counters were reset between."""
        if self.steps < earlier.steps or self.accepted < earlier.accepted:
            return None
        known = self.proposed is not None and earlier.proposed is not None
        same = len(self.per_position) == len(earlier.per_position)
        positions = zip(earlier.per_position, self.per_position, strict=False)
        return AcceptCounts(
            steps=self.steps - earlier.steps,
            accepted=self.accepted - earlier.accepted,
            proposed=(self.proposed or 0) - (earlier.proposed or 0) if known else None,
            per_position=tuple(after - before for before, after in positions) if same else (),
        )

    @property
    def accept_length(self) -> float | None:
        """Tokens per verify step, the bonus token included; ``None`` without a step."""
        return 1.0 + self.accepted / self.steps if self.steps > 0 else None

    @property
    def accept_rate(self) -> float | None:
        """Accepted over proposed draft tokens; ``None`` where nothing was proposed or told."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def survival(self) -> tuple[float, ...]:
        """Share of steps in which the first i+1 draft tokens were all accepted."""
        if self.steps <= 0:
            return ()
        return tuple(count / self.steps for count in self.per_position)

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """Share of token i+1 accepted given that all before it were; ``None`` after a zero."""
        values: list[float | None] = []
        before = self.steps
        for count in self.per_position:
            values.append(count / before if before > 0 else None)
            before = count
        return tuple(values)


def counts_from_histogram(histogram: Sequence[int]) -> AcceptCounts:
    """Return counts from SGLang's histogram: ``histogram[k]`` steps accepted exactly k drafts."""
    steps = sum(histogram)
    accepted = sum(k * count for k, count in enumerate(histogram))
    at_least = [sum(histogram[k:]) for k in range(1, len(histogram))]
    return AcceptCounts(
        steps=steps,
        accepted=accepted,
        proposed=steps * (len(histogram) - 1),
        per_position=tuple(at_least),
    )


def add_counts(counts: Iterable[AcceptCounts]) -> AcceptCounts | None:
    """Return the sum of ``counts``, ``None`` of none at all."""
    total: AcceptCounts | None = None
    for count in counts:
        total = count if total is None else total + count
    return total


def _add_positions(left: AcceptCounts, right: AcceptCounts) -> tuple[int, ...]:
    # A sum without steps says nothing about positions, so it must not erase the other side's.
    if left.steps == 0:
        return right.per_position
    if right.steps == 0:
        return left.per_position
    if len(left.per_position) != len(right.per_position):
        return ()
    return tuple(a + b for a, b in zip(left.per_position, right.per_position, strict=True))
