"""What the measurements of an experiment amount to: figures of arms, and ratios with intervals.

Everything is derived from raw records, so a definition can be corrected later.
"""

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from eaglemon.core.probe import RequestRecord, RequestStatus, Spread, figures_of, spread
from eaglemon.core.speculation import AcceptCounts, add_counts
from eaglemon.core.stats import (
    DRAWS,
    LEVEL,
    Interval,
    block_variance,
    mean_interval,
    pooled_variance,
    ratio_interval,
    restart_half,
    smallest_effect,
    widened,
)
from eaglemon.core.units import effect

ENOUGH = 3
"""Degrees of freedom from which the rounds' own effect is taken out: fewer cost more than it."""


class Verdict(StrEnum):
    """What a comparison shows."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference shown"
    """The interval holds 1: there may be a difference smaller than could be seen."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One finished measurement of one arm."""

    arm: int
    round: int
    records: tuple[RequestRecord, ...]
    counter_difference: AcceptCounts | None = None
    """Counters of the server over the whole trial, where its answers tell nothing."""
    memory_bytes: int | None = None
    """GPU memory held by the server."""
    startup_s: float | None = None
    """From launch to the first token; ``None`` where the server ran already."""
    turn_s: float | None = None
    """From the trial before to this one, the engine's own stop and start left out."""
    started_at: float | None = None
    """Unix seconds."""
    server_id: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """One arm over all its trials; ``None`` where nothing tells."""

    arm: int
    trials: int = 0
    ok: int = 0
    bad: int = 0
    """Requests that failed or were cut."""
    decode_tok_s: float | None = None
    """Geometric mean over prompts of a request's speed, without its first chunk."""
    total_tok_s: float | None = None
    """All requests together, mean over trials."""
    ttft_s: Spread | None = None
    accept: Interval | None = None
    """Accept length with its interval over prompts; without where only counters tell."""
    accept_length: float | None = None
    per_position: tuple[float, ...] = ()
    memory_bytes: int | None = None
    startup_s: float | None = None
    """Median over starts."""
    drift: float | None = None
    """Fastest over slowest trial of this arm, minus 1: what repeating alone brings about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An arm against the reference."""

    arm: int
    reference: int
    verdict: Verdict
    ratio: Interval | None = None
    """Decode tok/s of the arm over that of the reference, paired by prompt."""
    prompts: int = 0
    unpaired: int = 0
    """Prompts that only one of the two answered; they are left out."""
    smallest_effect: float | None = None
    """Share by which an arm would have had to differ to be noticed 4 times out of 5."""
    noise_floor: float | None = None
    """Standard deviation, as a share, of repeats of one arm; part of the interval."""
    overhead: float | None = None
    """Accept length at which the arm would be as fast as a reference without speculation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an experiment has shown so far."""

    arms: tuple[ArmFigures, ...]
    comparisons: tuple[Comparison, ...] = ()
    references: tuple[int, ...] = ()
    """Arms that others are compared with: one, or one for each group."""
    confounders: tuple[str, ...] = field(default=())


def arm_figures(
    arm: int, trials: Sequence[Trial], *, rng: Random, draws: int = DRAWS
) -> ArmFigures:
    """Return the figures of ``arm`` over its trials."""
    mine = [trial for trial in trials if trial.arm == arm]
    records = [record for trial in mine for record in trial.records]
    ok = [record for record in records if record.status is RequestStatus.OK]
    totals = [figures_of(trial.records).total_tok_s for trial in mine]
    known = [total for total in totals if total is not None]
    counts = add_counts(record.counts for record in ok if record.counts is not None)
    by_prompt = _counts_by_prompt(ok)
    accept = ratio_interval(by_prompt, rng=rng, draws=draws) if counts else None
    if counts is None:
        counts = add_counts(t.counter_difference for t in mine if t.counter_difference is not None)
    means = [mean for mean in map(_trial_mean, mine) if mean is not None]
    logs = _log_speeds(mine)
    memory = [trial.memory_bytes for trial in mine if trial.memory_bytes is not None]
    starts = [trial.startup_s for trial in mine if trial.startup_s is not None]
    return ArmFigures(
        arm=arm,
        trials=len(mine),
        ok=len(ok),
        bad=len(records) - len(ok),
        decode_tok_s=math.exp(statistics.fmean(logs.values())) if logs else None,
        total_tok_s=statistics.fmean(known) if known else None,
        ttft_s=spread([record.ttft_s for record in ok if record.ttft_s is not None]),
        accept=accept,
        accept_length=counts.accept_length if counts else None,
        per_position=counts.survival if counts else (),
        memory_bytes=max(memory, default=None),
        startup_s=statistics.median(starts) if starts else None,
        drift=math.exp(max(means) - min(means)) - 1.0 if len(means) > 1 else None,
    )


def compare(
    trials: Sequence[Trial],
    arm: int,
    reference: int,
    *,
    rng: Random,
    level: float = LEVEL,
    draws: int = DRAWS,
    speculates: bool = False,
    reference_speculates: bool = True,
) -> Comparison:
    """Return ``arm`` against ``reference``.

    The interval is a bootstrap over prompts, widened by what repeats were seen to do, with
    Student's factor for how few of them there are (``repeat_variance``).
    """
    ours = [trial for trial in trials if trial.arm == arm]
    theirs = [trial for trial in trials if trial.arm == reference]
    paired = paired_logs(trials, arm, reference)
    unpaired = len(_log_speeds(ours).keys() ^ _log_speeds(theirs).keys())
    interval = mean_interval(paired, rng=rng, level=level, draws=draws)
    if interval is None:
        return Comparison(
            arm=arm,
            reference=reference,
            verdict=Verdict.NOT_MEASURED,
            prompts=len(paired),
            unpaired=unpaired,
        )
    pooled = repeat_variance(trials)
    if pooled is not None:
        variance, df = pooled
        repeats = len(_common_rounds(ours, theirs))
        half = restart_half(variance, df, (repeats, repeats), level=level)
        interval = widened(interval, half)
    ratio = interval.exp()
    overhead = None
    if speculates and not reference_speculates:
        accept = arm_figures(arm, trials, rng=rng, draws=1).accept_length
        overhead = accept / ratio.value if accept is not None else None
    return Comparison(
        arm=arm,
        reference=reference,
        verdict=_verdict(interval),
        ratio=ratio,
        prompts=len(paired),
        unpaired=unpaired,
        smallest_effect=math.exp(smallest_effect(interval)) - 1.0,
        noise_floor=math.sqrt(pooled[0]) if pooled else None,
        overhead=overhead,
    )


def paired_logs(trials: Sequence[Trial], arm: int, reference: int) -> list[float]:
    """Return ``log(arm / reference)`` of each prompt that both answered.

    Compared within rounds, so that a slow hour does not count for one arm only.
    """
    ours = [trial for trial in trials if trial.arm == arm]
    theirs = [trial for trial in trials if trial.arm == reference]
    rounds = _common_rounds(ours, theirs)
    mine = _log_speeds([trial for trial in ours if trial.round in rounds])
    other = _log_speeds([trial for trial in theirs if trial.round in rounds])
    return [mine[key] - other[key] for key in mine if key in other]


def decode_interval(
    trials: Sequence[Trial], arm: int, *, rng: Random, draws: int = DRAWS
) -> Interval | None:
    """Return an arm's decode tok/s (geometric mean over prompts) with its interval over prompts.

    What restarts bring about is not in it: ratios of arms, paired by prompt, have that too.
    """
    logs = _log_speeds([trial for trial in trials if trial.arm == arm])
    interval = mean_interval(list(logs.values()), rng=rng, draws=draws)
    return None if interval is None else interval.exp()


def repeat_variance(trials: Sequence[Trial]) -> tuple[float, int] | None:
    """Return the variance of a repeat (of mean log speeds) and its degrees of freedom.

    From arms by rounds with the rounds' own effect taken out, where that leaves ``ENOUGH`` degrees
    of freedom; the choice depends on numbers of arms and rounds only. Else between the repeats of
    each arm, pooled. ``None`` where no arm was repeated.
    """
    logs = {(trial.arm, trial.round): _trial_logs(trial) for trial in trials}
    arms = sorted({arm for arm, _ in logs})
    rounds = sorted({number for _, number in logs})
    whole = [arm for arm in arms if all(logs.get((arm, number)) for number in rounds)]
    if (len(whole) - 1) * (len(rounds) - 1) >= ENOUGH:
        common = set.intersection(*(set(logs[arm, number]) for arm in whole for number in rounds))
        if common:
            return block_variance(
                [
                    [
                        statistics.fmean(logs[arm, number][key] for key in common)
                        for number in rounds
                    ]
                    for arm in whole
                ]
            )
    return pooled_variance(_means_by_arm(trials))


def findings_of(
    trials: Sequence[Trial],
    speculates: Sequence[bool],
    *,
    groups: Sequence[object] | None = None,
    seed: int = 1,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> Findings:
    """Return the findings over all arms; ``speculates`` tells of each arm whether it does.

    Each arm is compared with the first measured one of its group; without ``groups`` there is one.
    """
    rng = Random(seed)  # noqa: S311 - repeatable, not secret
    count = len(speculates)
    group_of = groups or [None] * count
    arms = tuple(arm_figures(arm, trials, rng=rng, draws=draws) for arm in range(count))
    first: dict[object, int] = {}
    for figures in arms:
        if figures.ok:
            first.setdefault(group_of[figures.arm], figures.arm)
    comparisons = tuple(
        compare(
            trials,
            arm,
            reference,
            rng=rng,
            level=level,
            draws=draws,
            speculates=speculates[arm],
            reference_speculates=speculates[reference],
        )
        for arm in range(count)
        if (reference := first.get(group_of[arm], arm)) != arm
    )
    return Findings(arms=arms, comparisons=comparisons, references=tuple(first.values()))


def narrow_enough(findings: Findings, half_width: float) -> bool:
    """Tell whether every measured ratio is known within ``half_width`` of itself."""
    ratios = [one.ratio for one in findings.comparisons if one.ratio is not None]
    return bool(ratios) and all(
        math.log(ratio.high / ratio.low) / 2 <= math.log1p(half_width) for ratio in ratios
    )


def not_measured(findings: Findings, names: Sequence[str], failed: Collection[int]) -> str:
    """Say which arms were not measured (yet), those that failed apart; empty where all were."""
    left = [names[one.arm] for one in findings.arms if not one.trials and one.arm not in failed]
    if not left:
        return ""
    return f"not compared yet: {', '.join(left)} {'was' if len(left) == 1 else 'were'} not measured"


def sentence(comparison: Comparison, names: Sequence[str]) -> str:
    """Return a comparison in one sentence."""
    arm, reference = names[comparison.arm], names[comparison.reference]
    ratio = comparison.ratio
    if ratio is None:
        return f"{arm} could not be compared with {reference}"
    share = f"{ratio.level * 100:g} %"
    span = f"{ratio.value:.2f} x ({share} interval {ratio.low:.2f} to {ratio.high:.2f})"
    over = f"over {comparison.prompts} prompts"
    if comparison.verdict is Verdict.NO_DIFFERENCE:
        seen = comparison.smallest_effect
        limit = f"; a difference of {effect(seen)} would have been seen" if seen else ""
        return f"no difference shown between {arm} and {reference}: {span} {over}{limit}"
    return f"{arm} is {comparison.verdict} than {reference}: {span} {over}"


def _verdict(interval: Interval) -> Verdict:
    if interval.low > 0:
        return Verdict.FASTER
    return Verdict.SLOWER if interval.high < 0 else Verdict.NO_DIFFERENCE


def _trial_logs(trial: Trial) -> dict[str, float]:
    """Return the mean log speed of each prompt in a trial."""
    found: dict[str, list[float]] = {}
    for record in trial.records:
        speed = record.decode_tok_s if record.status is RequestStatus.OK else None
        if speed:
            found.setdefault(record.prompt_id, []).append(math.log(speed))
    return {prompt: statistics.fmean(values) for prompt, values in found.items()}


def _common_rounds(ours: Sequence[Trial], theirs: Sequence[Trial]) -> set[int]:
    return {trial.round for trial in ours} & {trial.round for trial in theirs}


def _log_speeds(trials: Sequence[Trial]) -> dict[str, float]:
    """Return each prompt's mean log speed over trials, each trial weighted alike."""
    found: dict[str, list[float]] = {}
    for trial in trials:
        for prompt, value in _trial_logs(trial).items():
            found.setdefault(prompt, []).append(value)
    return {prompt: statistics.fmean(values) for prompt, values in found.items()}


def _trial_mean(trial: Trial) -> float | None:
    logs = _trial_logs(trial)
    return statistics.fmean(logs.values()) if logs else None


def _means_by_arm(trials: Sequence[Trial]) -> list[list[float]]:
    groups: dict[int, list[float]] = {}
    for arm in dict.fromkeys(trial.arm for trial in trials):
        mine = [_trial_logs(trial) for trial in trials if trial.arm == arm]
        # Only prompts that every repeat answered: otherwise their mixture would count as drift.
        common = set.intersection(*(set(logs) for logs in mine))
        if common:
            groups[arm] = [statistics.fmean(logs[key] for key in common) for logs in mine]
    return list(groups.values())


def _counts_by_prompt(records: Sequence[RequestRecord]) -> list[tuple[float, float]]:
    sums: dict[str, list[float]] = {}
    for record in records:
        counts = record.counts
        if counts is None or counts.steps <= 0:
            continue
        both = sums.setdefault(record.prompt_id, [0.0, 0.0])
        both[0] += counts.steps + counts.accepted
        both[1] += counts.steps
    return [(both[0], both[1]) for both in sums.values()]
