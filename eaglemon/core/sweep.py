"""Sweeps: combinations of speculation settings, which of them are worth a start, and the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.stats import LEVEL, t_interval
from eaglemon.core.verdict import Comparison, Trial, Verdict, compare, paired_logs

HOPELESS = 0.10
"""An arm that is surely slower than the best by this share is not measured again."""
AUTO_TREE = 16
"""Tokens that ``auto`` verifies of a tree (topk above 1); smaller trees have too little depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Speculation settings; ``steps`` 0 is no speculation."""

    steps: int
    topk: int = 1
    draft_tokens: int = 1

    @property
    def name(self) -> str:
        """``baseline``, ``steps=5`` or ``steps=5 topk=4 tokens=16``."""
        if self.steps == 0:
            return "baseline"
        tree = f" topk={self.topk} tokens={self.draft_tokens}" if self.topk > 1 else ""
        return f"steps={self.steps}{tree}"

    @property
    def settings(self) -> dict[str, str]:
        """As changes of a profile."""
        if self.steps == 0:
            return {"speculation": "none"}
        return {
            "steps": str(self.steps),
            "topk": str(self.topk),
            "draft-tokens": str(self.draft_tokens),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A combination that is not measured, and why."""

    combination: Combination
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best arm at one concurrency."""

    concurrency: int
    arm: int
    over_baseline: Comparison | None
    over_next: Comparison | None
    """Against the second best, at a level that allows for how many were compared."""


def combinations(
    steps: Sequence[int], topk: Sequence[int], draft_tokens: Sequence[int] | None
) -> tuple[list[Combination], list[Skipped]]:
    """Return what to measure, the baseline first, and what is skipped before any engine is asked.

    ``draft_tokens`` of ``None`` is ``auto``: steps + 1 for a chain, the whole tree up to
    ``AUTO_TREE`` otherwise.
    """
    found = [Combination(steps=0)]
    skipped = []
    seen = set(found)
    for k in topk:
        for number in sorted(set(steps)):
            nodes = k + (number - 1) * k * k + 1
            wanted = [min(nodes, AUTO_TREE)] if draft_tokens is None else list(draft_tokens)
            if k == 1 and draft_tokens is None:
                wanted = [number + 1]
            for tokens in wanted:
                one = Combination(steps=number, topk=k, draft_tokens=tokens)
                reason = ""
                if number < 1 or k < 1:
                    reason = "steps and topk begin at 1"
                elif one in seen:
                    reason = "named twice"
                elif k > 1 and number == 1 and tokens <= 2:
                    reason = "a tree of one token is the chain of one step"
                elif k == 1 and tokens != number + 1:
                    reason = f"a chain of {number} verifies {number + 1} tokens, whatever is asked"
                elif tokens > nodes:
                    reason = f"a tree of {number} steps with topk {k} has only {nodes} tokens"
                if reason:
                    skipped.append(Skipped(combination=one, reason=reason))
                else:
                    found.append(one)
                    seen.add(one)
    return found, skipped


def hopeless(plan: ExperimentPlan, trials: Sequence[Trial]) -> dict[int, str]:
    """Return arms that are surely worse than the best of their concurrency, with the reason.

    A longer draft that loses to a shorter one at some concurrency loses at every higher one too:
    verifying more tokens costs more, the more requests share the GPU. Baselines are always kept.
    """
    found: dict[int, str] = {}
    measured = {trial.arm for trial in trials}
    for arm in sorted(measured):
        mine = plan.arms[arm]
        if mine.profile.speculation is None:
            continue
        for other in sorted(measured - {arm}):
            theirs = plan.arms[other]
            if theirs.request.concurrency != mine.request.concurrency:
                continue
            interval = t_interval(paired_logs(trials, arm, other))
            if interval is None or interval.exp().high > 1.0 - HOPELESS:
                continue
            worse = f"at most {interval.exp().high:.2f} x {theirs.name}"
            found.setdefault(arm, worse)
            if _tokens(plan, other) < _tokens(plan, arm):
                for sibling, candidate in enumerate(plan.arms):
                    if (
                        candidate.server_key == mine.server_key
                        and candidate.request.concurrency > mine.request.concurrency
                    ):
                        found.setdefault(sibling, f"{worse} already at {mine.name}")
    return found


def best_of(plan: ExperimentPlan, trials: Sequence[Trial], *, draws: int) -> list[Best]:
    """Return the best arm of each concurrency with its margin."""
    rng = Random(plan.seed)  # noqa: S311 - repeatable, not secret
    measured = {trial.arm for trial in trials}
    found = []
    for concurrency in sorted({arm.request.concurrency for arm in plan.arms}):
        arms = [
            index
            for index, arm in enumerate(plan.arms)
            if arm.request.concurrency == concurrency and index in measured
        ]
        if not arms:
            continue
        base = arms[0]
        ratios = {
            arm: sum(logs) / len(logs) for arm in arms if (logs := paired_logs(trials, arm, base))
        }
        if not ratios:
            continue
        order = sorted(ratios, key=lambda arm: ratios[arm], reverse=True)
        level = 1.0 - (1.0 - LEVEL) / max(1, len(order) - 1)
        baseline = next((a for a in arms if plan.arms[a].profile.speculation is None), None)
        best = order[0]
        over_baseline = over_next = None
        if baseline is not None and baseline != best:
            over_baseline = compare(trials, best, baseline, rng=rng, level=level, draws=draws)
        if len(order) > 1:
            over_next = compare(trials, best, order[1], rng=rng, level=level, draws=draws)
        found.append(
            Best(
                concurrency=concurrency,
                arm=best,
                over_baseline=over_baseline,
                over_next=over_next,
            )
        )
    return found


def best_line(best: Best, names: Sequence[str]) -> str:
    """Return the best of a concurrency in one sentence."""
    text = f"at {best.concurrency} at a time the best is {names[best.arm]}"
    base, following = best.over_baseline, best.over_next
    if base is not None and base.ratio is not None:
        text += f": {base.ratio.value:.2f} x {names[base.reference]} ({_span(base)})"
    if following is None or following.ratio is None:
        return text
    second = names[following.reference]
    if following.verdict is Verdict.FASTER:
        return f"{text}, ahead of {second} by {_margin(following)} ({_span(following)})"
    return f"{text}; not told apart from {second}: {_span(following)}"


def _span(comparison: Comparison) -> str:
    ratio = comparison.ratio
    return "-" if ratio is None else f"{ratio.low:.2f} to {ratio.high:.2f} x"


def _margin(comparison: Comparison) -> str:
    ratio = comparison.ratio
    return "-" if ratio is None else f"{(ratio.value - 1) * 100:.0f} %"


def _tokens(plan: ExperimentPlan, arm: int) -> int:
    speculation = plan.arms[arm].profile.speculation
    return 1 if speculation is None else speculation.draft_tokens or 1
