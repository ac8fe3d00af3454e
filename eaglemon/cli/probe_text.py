"""Results of probes as text: one probe, several levels side by side, and the capacity."""

from collections.abc import Sequence

from eaglemon.cli.tables import columns, probe_lines
from eaglemon.core.capacity import Capacity
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.units import UNKNOWN, latency, length, percent, rate


def results_lines(probes: Sequence[ProbeProgress]) -> list[str]:
    """Return one probe in full, or several levels as a table with their notes."""
    if len(probes) == 1:
        return probe_lines(probes[0])
    rows = [("USERS", "OK", "BAD", "TOTAL", "STEADY", "PER USER", "TTFT", "P99", "GAP", "ACCEPT")]
    for probe in probes:
        figures = probe.figures
        ttft, gap = figures.ttft_s, figures.chunk_gap_s
        sure = probe.claims_first_tokens
        rows.append(
            (
                str(probe.plan.concurrency),
                str(figures.ok),
                str(figures.failed + figures.cut),
                _about(rate(figures.total_tok_s), claimed=probe.claims_speed),
                _about(rate(figures.steady_tok_s), claimed=probe.claims_speed),
                _about(rate(figures.user_tok_s), claimed=probe.claims_speed),
                _about(latency(ttft.median) if ttft else UNKNOWN, claimed=sure),
                _about(latency(ttft.p99) if ttft else UNKNOWN, claimed=sure),
                latency(gap.median) if gap else UNKNOWN,
                length(figures.accept_length),
            )
        )
    lines = columns(rows, right=frozenset(range(10)))
    marked = "" if all(probe.claims_first_tokens for probe in probes) else "; ~ see the notes"
    lines.append(f"tok/s and medians; load from {probes[0].driver}{marked}")
    for probe in probes:
        if probe.figures.per_position:
            shares = " ".join(percent(share) for share in probe.figures.per_position)
            lines.append(f"by position at {probe.plan.concurrency}: {shares}")
    for probe in probes:
        lines += [f"note at {probe.plan.concurrency}: {note}" for note in probe.notes]
    return lines


def _about(text: str, *, claimed: bool) -> str:
    """Mark a figure that is not the server's alone."""
    return text if claimed else f"~{text}"


def capacity_lines(capacity: Capacity) -> list[str]:
    """Return what speculation costs and could give at one concurrency."""
    verdict = "faster" if capacity.speed_up > 1 else "slower"
    first = (
        f"capacity at {capacity.concurrency}: {rate(capacity.speculative_tok_s)} tok/s per user, "
        f"{rate(capacity.baseline_tok_s)} without speculation: "
        f"{capacity.speed_up:.2f} times, {verdict}"
    )
    second = (
        f"a verify step costs {capacity.overhead:.2f} steps without speculation: "
        f"the accept length must be above {capacity.overhead:.2f}, it is "
        f"{length(capacity.accept_length)}"
    )
    rows = [("  ACCEPT", "TOK/S", "TIMES")]
    for accept_length in capacity.lengths():
        tok_s = capacity.tok_s_at(accept_length)
        times = f"{tok_s / capacity.baseline_tok_s:.2f}"
        rows.append((f"  {accept_length:.0f}", rate(tok_s), times))
    return [first, second, *columns(rows, right=frozenset({0, 1, 2}))]


def calibration_lines(
    forced: Sequence[ProbeProgress], lengths: Sequence[float], measured: ProbeProgress
) -> list[str]:
    """Return forced accept lengths with their tok/s, and what the measured run predicts there."""
    rows = [("  FORCED", "ACCEPT", "TOK/S", "PREDICTED")]
    user, own = measured.figures.user_tok_s, measured.figures.accept_length
    for wanted, probe in zip(lengths, forced, strict=True):
        found = probe.figures
        predicted = (
            user * found.accept_length / own if user and own and found.accept_length else None
        )
        rows.append(
            (f"  {wanted:g}", length(found.accept_length), rate(found.user_tok_s), rate(predicted))
        )
    title = "with forced accept lengths (made up by the engine, tok/s per user):"
    return [title, *columns(rows, right=frozenset({0, 1, 2, 3}))]
