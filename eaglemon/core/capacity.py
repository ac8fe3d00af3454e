"""What speculation costs and could give: overhead, break-even, and tok/s at other accept lengths.

A verify step takes the same time whatever it accepts, so that tok/s grows with the accept length
and the overhead belongs to the machine and the settings, not to the draft.
"""

from dataclasses import dataclass

from eaglemon.core.probe import ProbeFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A speculating server beside the same server without; all tok/s are of one user."""

    concurrency: int
    accept_length: float
    speculative_tok_s: float
    baseline_tok_s: float
    ceiling: int | None = None
    """Largest possible accept length, where known."""

    @property
    def speed_up(self) -> float:
        """tok/s with speculation over tok/s without."""
        return self.speculative_tok_s / self.baseline_tok_s

    @property
    def overhead(self) -> float:
        """What a verify step costs, in steps without speculation: also the break-even length."""
        return self.accept_length * self.baseline_tok_s / self.speculative_tok_s

    def tok_s_at(self, accept_length: float) -> float:
        """Return the tok/s of a draft with this accept length, the steps taking as long."""
        return self.baseline_tok_s * accept_length / self.overhead

    def lengths(self) -> tuple[float, ...]:
        """Return the accept lengths worth a line: whole ones up to the ceiling."""
        top = self.ceiling or max(2, int(self.accept_length) + 2)
        return tuple(float(length) for length in range(1, top + 1))


def capacity_of(
    speculative: ProbeFigures,
    baseline: ProbeFigures,
    *,
    concurrency: int,
    ceiling: int | None = None,
) -> Capacity | None:
    """Return the capacity from two probes at one concurrency; ``None`` where a figure lacks."""
    length, fast, slow = (
        speculative.accept_length,
        speculative.user_tok_s,
        baseline.user_tok_s,
    )
    if not length or not fast or not slow:
        return None
    return Capacity(
        concurrency=concurrency,
        accept_length=length,
        speculative_tok_s=fast,
        baseline_tok_s=slow,
        ceiling=ceiling,
    )
