"""Two runs side by side in words: the same ones on the command line and on the screen. Pure."""

from collections.abc import Callable

from eaglemon.core import units
from eaglemon.core.run_comparison import ArmPair, RunComparison
from eaglemon.core.verdict import ArmFigures, sentence


def _accept(figures: ArmFigures) -> str:
    text = units.length(figures.accept_length)
    if figures.accept is None:
        return text
    return f"{text} ({figures.accept.low:.2f} to {figures.accept.high:.2f})"


_FIGURES: tuple[tuple[str, Callable[[ArmFigures], str]], ...] = (
    ("start-up", lambda f: units.duration(f.startup_s)),
    ("accept length", _accept),
    ("decode tok/s", lambda f: units.rate(f.decode_tok_s)),
    ("total tok/s", lambda f: units.rate(f.total_tok_s)),
    ("TTFT", lambda f: units.latency(f.ttft_s.median if f.ttft_s else None)),
    ("memory", lambda f: units.memory(f.memory_bytes)),
    ("requests", lambda f: f"{f.ok} ok, {f.bad} failed or cut"),
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
    width = max(len(name) for name, _ in _FIGURES)
    for name, text in _FIGURES:
        old, new = (text(figures) for figures in pair.figures)
        lines.append(f"  {name:<{width}}  {old} → {new}")
    if pair.comparison is not None:
        # Its arms are numbered 0 for the earlier and 1 for the later one.
        lines.append(sentence(pair.comparison, pair.names))
    lines += [f"not a fair comparison: {reason}" for reason in pair.unfair]
    lines += [f"what changed too: {note}" for note in pair.notes]
    return lines
