"""Two runs side by side in words: the same ones on the command line and on the screen. Pure."""

from collections.abc import Callable

from eaglemon.core import units
from eaglemon.core.run_comparison import ArmPair, RunComparison
from eaglemon.core.stats import Interval
from eaglemon.core.verdict import ArmFigures, sentence

_FIGURES: tuple[tuple[str, Callable[[ArmFigures], str]], ...] = (
    ("start-up", lambda f: units.duration(f.startup_s)),
    ("total tok/s", lambda f: units.rate(f.total_tok_s)),
    ("TTFT", lambda f: units.latency(f.ttft_s.median if f.ttft_s else None)),
    ("memory", lambda f: units.memory(f.memory_bytes)),
    ("requests", lambda f: units.count(f.ok)),
    ("failed or cut", lambda f: units.count(f.bad)),
)


def comparison_lines(comparison: RunComparison) -> list[str]:
    """Return a comparison as lines of text."""
    first, second = comparison.runs
    lines = [f"{first}, then {second} ({units.duration(abs(comparison.apart_s))} apart)"]
    for pair in comparison.pairs:
        lines += ["", *pair_lines(pair)]
    if not comparison.pairs:
        lines += ["", "they have no arm in common: name one of each, as RUN:ARM"]
    if comparison.alone:
        lines += ["", f"without a counterpart: {', '.join(comparison.alone)}"]
    return lines


def pair_lines(pair: ArmPair) -> list[str]:
    """Return an arm beside its counterpart."""
    before, after = pair.names
    lines = [f"{before} → {after}"]
    lines += [f"  {key}: {old} → {new}" for key, old, new in pair.differences]
    if not pair.differences:
        lines.append("  the same flags")
    if any(figures.trials for figures in pair.figures):
        lines += _figure_lines(pair)
    if pair.comparison is not None:
        # Its arms are numbered 0 for the earlier and 1 for the later one.
        lines.append(sentence(pair.comparison, pair.names))
    lines += [f"not a fair comparison: {reason}" for reason in pair.unfair]
    lines += [f"what changed too: {note}" for note in pair.notes]
    return lines


def _figure_lines(pair: ArmPair) -> list[str]:
    before, after = pair.figures
    rows = [
        ("", "earlier", "later"),
        ("decode tok/s", units.rate(before.decode_tok_s), units.rate(after.decode_tok_s)),
        *_interval_row(pair.decode, units.rate),
        ("accept length", units.length(before.accept_length), units.length(after.accept_length)),
        *_interval_row((before.accept, after.accept), units.length),
        *((name, text(before), text(after)) for name, text in _FIGURES),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        f"  {name:<{widths[0]}}  {old:>{widths[1]}}  {new:>{widths[2]}}" for name, old, new in rows
    ]


def _interval_row(
    both: tuple[Interval | None, Interval | None], text: Callable[[float], str]
) -> list[tuple[str, str, str]]:
    """Return the row below a figure with its intervals; none where none is known."""
    if both == (None, None):
        return []
    before, after = (f"{text(i.low)} to {text(i.high)}" if i else units.UNKNOWN for i in both)
    return [("  95 % interval", before, after)]
