"""Two measured runs side by side: flags, starts, figures, and a verdict where fair. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from eaglemon.core.experiment import flag_differences
from eaglemon.core.experiment_records import ExperimentRecord, Startup
from eaglemon.core.stats import DRAWS, Interval
from eaglemon.core.verdict import (
    ArmFigures,
    Comparison,
    arm_figures,
    compare,
    decode_interval,
)

_ASKED = (
    ("workload", "workload"),
    ("concurrency", "requests at a time"),
    ("max_tokens", "longest answer"),
    ("temperature", "temperature"),
    ("ignore_eos", "whether answers end by themselves"),
    ("nonce", "whether prompts begin differently"),
    ("duration_s", "time limit"),
)
"""Settings of requests that must be the same for their speeds to mean the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPair:
    """An arm of one run beside an arm of another, which it is compared with."""

    names: tuple[str, str]
    """``RUN:ARM`` of the earlier and of the later one."""
    differences: tuple[tuple[str, str, str], ...]
    """(setting, value before, value after)."""
    figures: tuple[ArmFigures, ArmFigures]
    decode: tuple[Interval | None, Interval | None] = (None, None)
    """Decode tok/s of both, with intervals over prompts."""
    comparison: Comparison | None = None
    """The later arm over the earlier one; ``None`` where a ratio would not be fair."""
    unfair: tuple[str, ...] = ()
    """Why there is no verdict."""
    notes: tuple[str, ...] = ()
    """What else changed in between; it is part of the ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs, the earlier one first."""

    runs: tuple[str, str]
    apart_s: float
    """Seconds between their begins."""
    pairs: tuple[ArmPair, ...] = ()
    alone: tuple[str, ...] = ()
    """``RUN:ARM`` of arms that the other run has no counterpart of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMeasurement:
    """What a profile reached in one stored run."""

    run: str
    arm: str
    at: float
    """Unix seconds."""
    accept_length: float | None = None
    decode_tok_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileHistory:
    """Earlier starts and measurements of a profile, newest first."""

    starts: tuple[Startup, ...] = ()
    measured: tuple[PastMeasurement, ...] = ()


def compare_runs(
    one: ExperimentRecord, other: ExperimentRecord, *, draws: int = DRAWS
) -> RunComparison:
    """Return two runs side by side.

    Arms are paired by name, then by the profile they are of; with one left on each side those.
    """
    first, second = sorted((one, other), key=lambda record: record.created_at)
    pairs = []
    left, right = list(range(len(first.names))), list(range(len(second.names)))
    for alike in (_same_name, _same_profile):
        for a in tuple(left):
            b = next((b for b in right if alike(first, a, second, b)), None)
            if b is not None:
                pairs.append((a, b))
                left.remove(a)
                right.remove(b)
    if len(left) == len(right) == 1:
        pairs.append((left.pop(), right.pop()))
    return RunComparison(
        runs=(first.plan.id, second.plan.id),
        apart_s=second.created_at - first.created_at,
        pairs=tuple(compare_arms(first, a, second, b, draws=draws) for a, b in sorted(pairs)),
        alone=tuple(f"{first.plan.id}:{first.names[a]}" for a in left)
        + tuple(f"{second.plan.id}:{second.names[b]}" for b in right),
    )


def compare_arms(
    one: ExperimentRecord, a: int, other: ExperimentRecord, b: int, *, draws: int = DRAWS
) -> ArmPair:
    """Return arm ``b`` of the second run beside arm ``a`` of the first, with the ratio if fair."""
    trials = [
        *(replace(trial, arm=0) for trial in one.trials if trial.arm == a),
        *(replace(trial, arm=1) for trial in other.trials if trial.arm == b),
    ]
    rng = Random(one.plan.seed)  # noqa: S311 - repeatable, not secret
    unfair, notes = _circumstances(one, a, other, b)
    comparison = None
    if not unfair:
        comparison = compare(trials, 1, 0, rng=rng, draws=draws)
        if comparison.ratio is None:
            comparison = None
            unfair = ("they have no prompt in common that both answered",)
    before, after = (arm_figures(arm, trials, rng=rng, draws=draws) for arm in (0, 1))
    decode = [decode_interval(trials, arm, rng=rng, draws=draws) for arm in (0, 1)]
    return ArmPair(
        names=(f"{one.plan.id}:{one.names[a]}", f"{other.plan.id}:{other.names[b]}"),
        differences=flag_differences(one.plan.arms[a].profile, other.plan.arms[b].profile),
        figures=(before, after),
        decode=(decode[0], decode[1]),
        comparison=comparison,
        unfair=unfair,
        notes=notes,
    )


def history_of(profile: str, records: Sequence[ExperimentRecord]) -> tuple[PastMeasurement, ...]:
    """Return what a profile, unchanged by settings, reached; in the order of ``records``."""
    found = []
    for record in records:
        for number, arm in enumerate(record.plan.arms):
            if arm.profile.name != profile or arm.name != profile:
                continue
            rng = Random(record.plan.seed)  # noqa: S311 - repeatable, not secret
            figures = arm_figures(number, record.trials, rng=rng, draws=1)
            if figures.ok:
                found.append(
                    PastMeasurement(
                        run=record.plan.id,
                        arm=arm.name,
                        at=record.created_at,
                        accept_length=figures.accept_length,
                        decode_tok_s=figures.decode_tok_s,
                    )
                )
    return tuple(found)


def _same_name(first: ExperimentRecord, a: int, second: ExperimentRecord, b: int) -> bool:
    return first.names[a] == second.names[b]


def _same_profile(first: ExperimentRecord, a: int, second: ExperimentRecord, b: int) -> bool:
    return first.plan.arms[a].profile.name == second.plan.arms[b].profile.name


def _circumstances(
    one: ExperimentRecord, a: int, other: ExperimentRecord, b: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return why a ratio would not be fair, and what else differs."""
    unfair, notes = [], []
    left, right = one.plan.arms[a], other.plan.arms[b]
    for record, arm in ((one, a), (other, b)):
        if not any(trial.arm == arm for trial in record.trials):
            unmeasured = "it has no finished measurement"
            why = record.failures.get(arm) or record.given_up.get(arm, unmeasured)
            unfair.append(f"{record.plan.id}:{record.names[arm]} was not measured: {why}")
    for name, words in _ASKED:
        before, after = getattr(left.request, name), getattr(right.request, name)
        if before != after:
            unfair.append(f"they were asked differently: {words} {before}, then {after}")
    if left.profile.model != right.profile.model:
        unfair.append(f"the models differ: {left.profile.model}, then {right.profile.model}")
    before_env, after_env = one.environments.get(a), other.environments.get(b)
    if before_env is None or after_env is None:
        notes.append("what one of them ran on is not known")
    elif before_env.gpus != after_env.gpus:
        gpus = [", ".join(env.gpus) or "unknown" for env in (before_env, after_env)]
        unfair.append(f"the GPUs differ: {gpus[0]}, then {gpus[1]}")
    if left.host != right.host:
        notes.append(f"host: {left.host}, then {right.host}")
    if before_env is not None and after_env is not None:
        for name, words in (("engine_version", "engine"), ("driver_version", "driver")):
            before, after = getattr(before_env, name), getattr(after_env, name)
            if before != after:
                notes.append(f"{words}: {before or 'unknown'}, then {after or 'unknown'}")
    return tuple(unfair), tuple(notes)
