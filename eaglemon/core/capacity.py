"""What speculation costs and could give: overhead, break-even, and tok/s at other accept lengths.

A verify step takes the same time whatever it accepts, so that tok/s grows with the accept length
and the overhead belongs to the machine and the settings, not to the draft.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eaglemon.core.probe import ProbeFigures, ProbePlan, ProbeProgress
from eaglemon.core.units import length as shown_length
from eaglemon.errors import UsageError


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


def check_baseline(name: str, probes: Sequence[ProbeProgress]) -> None:
    """Raise ``UsageError`` where the result ``name`` is of a server that speculates itself."""
    for probe in probes:
        figures = probe.figures
        if figures.accept_length is not None or figures.counts is not None:
            told = shown_length(figures.accept_length)
            raise UsageError(
                f"{name} is no result without speculation: its own accept length is {told}",
                hint="probe the same server, started without its draft, with --out FILE.json",
            )


def differences(probe: ProbeProgress, baseline: ProbeProgress) -> tuple[str, ...]:
    """Return in what two probes differ besides speculation, each as "NAME: ONE and OTHER".

    Nothing is said of what an older result does not tell.
    """
    ours, theirs = probe.plan, baseline.plan
    pairs: tuple[tuple[str, object, object], ...] = (
        ("engine", probe.engine, baseline.engine),
        ("workload", ours.workload, theirs.workload),
        ("max tokens", ours.max_tokens, theirs.max_tokens),
        ("temperature", f"{ours.temperature:g}", f"{theirs.temperature:g}"),
        ("at a time", ours.concurrency, theirs.concurrency),
        ("answers", _ends(ours), _ends(theirs)),
        ("load from", probe.driver, baseline.driver),
    )
    found = [
        f"{name}: {one} and {other}" for name, one, other in pairs if one and other and one != other
    ]
    hashes = (ours.prompts_sha256, theirs.prompts_sha256)
    if all(hashes) and hashes[0] != hashes[1] and ours.workload == theirs.workload:
        found.append(f"prompts: both {ours.workload}, but not the same ones")
    return tuple(found)


def _ends(plan: ProbePlan) -> str:
    return "forced to their full length" if plan.ignore_eos else "that end by themselves"
