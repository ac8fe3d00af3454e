"""The parts that every report has, as plain text: rows, sentences and lists."""

from collections.abc import Sequence

from eaglemon.core.experiment import flag_differences
from eaglemon.core.experiment_records import ExperimentRecord
from eaglemon.core.profiles import ProbeDefaults
from eaglemon.core.stats import Interval
from eaglemon.core.units import (
    UNKNOWN,
    duration,
    effect,
    latency,
    length,
    memory,
    percent,
    plural,
    rate,
)
from eaglemon.core.verdict import ArmFigures, Comparison, Findings, not_measured, sentence

HEADER = (
    "ARM",
    "ACCEPT",
    "BY POSITION",
    "TOK/S",
    "TOTAL",
    "TTFT",
    "MEMORY",
    "START-UP",
    "DRIFT",
    "RATIO",
    "95 % INTERVAL",
    "VERDICT",
)
_SHOWN_POSITIONS = 6
RIGHT = frozenset({1, 3, 4, 5, 6, 7, 8, 9})
"""Columns of numbers."""

OUTCOMES = {
    "": "was cut off: eaglemon ab --resume goes on with it",
    "done": "all measurements were made",
    "narrow": "it ended early, since every interval was narrow enough",
    "time-up": "it ended early, since its time was up",
    "cancelled": "it was cancelled",
    "failed": "no arm could be measured",
}


def result_rows(record: ExperimentRecord, findings: Findings) -> list[tuple[str, ...]]:
    """Return the table of results, its header first."""
    by_arm = {one.arm: one for one in findings.comparisons}
    return [
        HEADER,
        *(
            _row(record, figures, by_arm.get(figures.arm), findings.references)
            for figures in findings.arms
        ),
    ]


def verdict_lines(record: ExperimentRecord, findings: Findings) -> list[str]:
    """Return a sentence for each comparison, then what limits them."""
    names = record.names
    lines = [sentence(one, names) for one in findings.comparisons if one.ratio is not None]
    lines += [f"{names[arm]} failed: {why}" for arm, why in sorted(record.failures.items())]
    lines += [f"{names[arm]} was given up: {why}" for arm, why in sorted(record.given_up.items())]
    lines += [
        f"{names[one.arm]} breaks even at an accept length of {length(one.overhead)}, "
        f"and reaches {length(findings.arms[one.arm].accept_length)}"
        for one in findings.comparisons
        if one.overhead is not None
    ]
    missing = not_measured(findings, names, {*record.failures, *record.given_up})
    if missing:
        lines.append(missing)
    return lines or ["nothing was measured"]


def noise_lines(findings: Findings) -> list[str]:
    """Return what is known of the noise."""
    floor = next((c.noise_floor for c in findings.comparisons if c.noise_floor is not None), None)
    if floor is None:
        return ["no arm was repeated: the drift of a restart is not known, nor in the intervals"]
    lines = [f"noise floor: repeats of one arm differ by {floor * 100:.1f} % (standard deviation)"]
    unpaired = sum(one.unpaired for one in findings.comparisons if one.ratio is not None)
    if unpaired:
        lines.append(f"{unpaired} prompts were answered by one arm only, and left out")
    return lines


def setup_rows(record: ExperimentRecord) -> list[tuple[str, ...]]:
    """Return what each arm was measured on, a header first."""
    rows: list[tuple[str, ...]] = [
        ("ARM", "HOST", "ENGINE", "DRIVER", "GPUS", "PROFILE", "DIGEST", "WORKLOAD")
    ]
    for index, arm in enumerate(record.plan.arms):
        known = record.environments.get(index)
        release = f"{known.engine_version or '?'}" if known else "?"
        revision = f" ({known.engine_revision})" if known and known.engine_revision else ""
        rows.append(
            (
                arm.name,
                arm.host,
                f"{arm.profile.engine} {release}{revision}",
                (known.driver_version if known else None) or UNKNOWN,
                ", ".join(known.gpus) if known and known.gpus else UNKNOWN,
                arm.profile.name,
                known.digest if known else arm.server_key.rpartition("/")[2],
                _asked(arm.request),
            )
        )
    return rows


def difference_rows(record: ExperimentRecord) -> list[tuple[str, ...]]:
    """Return the settings that differ from the first arm's, a header first."""
    arms = record.plan.arms
    rows: list[tuple[str, ...]] = [("ARM", "SETTING", arms[0].name, "ITS OWN")]
    for arm in arms[1:]:
        for name, before, after in flag_differences(arms[0].profile, arm.profile):
            rows.append((arm.name, name, before, after))
    return rows


def asked_line(record: ExperimentRecord) -> str:
    """Return what was asked, in one line."""
    plan = record.plan
    stop = f"{plan.stop.half_width * 100:g} %"
    limit = f", at most {duration(plan.stop.limit_s)}" if plan.stop.limit_s else ""
    outcome = (
        "it is under way" if record.under_way else OUTCOMES.get(record.outcome, record.outcome)
    )
    return (
        f"{len(plan.arms)} arms ({', '.join(record.names)}) in {plural(plan.rounds, 'round')}, "
        f"order {plan.order.value}, seed {plan.seed}, to end early once every interval is within "
        f"{stop}{limit}; {outcome}"
    )


def interval_text(interval: Interval | None) -> str:
    """Return the ends of an interval: ``1.40 to 1.60``."""
    return UNKNOWN if interval is None else f"{interval.low:.2f} to {interval.high:.2f}"


def positions_of(record: ExperimentRecord, figures: ArmFigures) -> tuple[float, ...]:
    """Return acceptance by position, as deep as the arm drafts.

    Of a tree an engine counts more positions than a path through it has.
    """
    speculation = record.plan.arms[figures.arm].profile.speculation
    return figures.per_position[: speculation.steps if speculation is not None else None]


def _position_cell(record: ExperimentRecord, figures: ArmFigures) -> str:
    shares = positions_of(record, figures)
    more = " ..." if len(shares) > _SHOWN_POSITIONS else ""
    return " ".join(percent(share) for share in shares[:_SHOWN_POSITIONS]) + more or UNKNOWN


def _asked(request: ProbeDefaults) -> str:
    return (
        f"{request.workload}, {request.requests} prompts, {request.concurrency} at a time, "
        f"up to {request.max_tokens} tokens, temperature {request.temperature:g}"
    )


def _row(
    record: ExperimentRecord,
    figures: ArmFigures,
    comparison: Comparison | None,
    references: Sequence[int],
) -> tuple[str, ...]:
    verdict, ratio = UNKNOWN, None
    if comparison is not None:
        verdict, ratio = comparison.verdict.value, comparison.ratio
        if ratio is not None and comparison.smallest_effect is not None:
            verdict += f" (seen from {effect(comparison.smallest_effect)})"
    elif figures.arm in references:
        verdict = "reference"
    ends = (("failed", record.failures), ("given up", record.given_up))
    end = next((word for word, reasons in ends if figures.arm in reasons), None)
    if end is not None:
        verdict = end if figures.trials == 0 else f"{verdict}, then {end}"
    accept = length(figures.accept_length)
    if figures.accept is not None:
        accept += f" +-{figures.accept.half_width:.2f}"
    return (
        record.names[figures.arm],
        accept,
        _position_cell(record, figures),
        rate(figures.decode_tok_s),
        rate(figures.total_tok_s),
        latency(figures.ttft_s.median if figures.ttft_s else None),
        memory(figures.memory_bytes),
        duration(figures.startup_s),
        UNKNOWN if figures.drift is None else f"{figures.drift * 100:.1f} %",
        UNKNOWN if ratio is None else f"{ratio.value:.2f} x",
        interval_text(ratio),
        verdict,
    )


def aligned(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as lines with aligned columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
