"""Why a draft is slow: one verdict from the served figures, the offline ones and the rules.

The order of the questions is that of their certainty: a wrong algorithm and a wrong wiring explain
everything after them, and overhead is blamed only where the draft does what it can.
"""

import re
from collections.abc import Sequence

from eaglemon.core.draft_decay import context_finding, decay_finding
from eaglemon.core.draft_files import (
    broken_finding,
    doubts_of,
    mislabelled_finding,
    settings_finding,
    unfit_finding,
    vocabulary_finding,
)
from eaglemon.core.draft_suspicion import conventions
from eaglemon.core.draft_verdict import (
    DraftDiagnosis,
    DraftEvidence,
    DraftVerdict,
    Finding,
    ServedFigures,
)
from eaglemon.core.draft_views import CheckView
from eaglemon.core.draft_wiring import wiring_finding
from eaglemon.core.problems import Problem, Severity
from eaglemon.core.wiring import Capture

SAME_STEP = 0.08
"""Served and offline acceptance of the first step differ by less on the same kind of text."""
_USELESS_FIRST, _USELESS_SECOND = 0.15, 0.02
_COLLAPSE = 0.6
_WEAK_LENGTH = 1.5
_MENDED = frozenset(
    {
        DraftVerdict.WIRING,
        DraftVerdict.VOCABULARY,
        DraftVerdict.NORMS,
        DraftVerdict.CONTEXT,
        DraftVerdict.SERVING,
        DraftVerdict.RECURRENCE,
    }
)
"""Verdicts on how a draft is served, not on the draft: what it reaches offline is to be had."""
_NORM_FLAG = re.compile(r"\b(?:norm_\w+|fc_norm)\b")
_NEAR = 1.15
"""Accept lengths that differ by less than this factor are as good as each other."""


def diagnose_draft(known: DraftEvidence) -> DraftDiagnosis:
    """Return the first of the questions that has an answer, with all figures that bear on it."""
    capture = _capture_in_use(known)
    right, as_served = _offline(known, capture)
    overhead = _overhead(known)
    finding = (
        _algorithm(known)
        or broken_finding(known)
        or mislabelled_finding(known)
        or wiring_finding(known, capture, right, as_served)
        or vocabulary_finding(known, right)
        or settings_finding(known, right)
        or unfit_finding(known)
        or _recurrence(known, right)
        or context_finding(known)
        or decay_finding(known)
        or _useless(known)
        or _serving(known, right)
        or _speed(known, right, overhead)
    )
    trained = known.search.slots if known.search and known.search.decided else None
    return DraftDiagnosis(
        verdict=finding.verdict,
        sentence=finding.sentence,
        evidence=(*finding.evidence, *_outlook(finding, known, right, overhead)),
        fixes=(*finding.fixes, *_remedies(finding, known)),
        certain=finding.certain,
        captured=capture.slots if capture else None,
        trained=trained,
        target_layers=known.inspect.target_layers,
        offline=right.served_survival if right else (),
        offline_as_served=as_served.served_survival if as_served else (),
        served=known.served.survival if known.served else (),
        overhead=overhead,
        accept_length=known.served.accept_length if known.served else None,
        available_length=right.served_length if right else None,
    )


def _capture_in_use(known: DraftEvidence) -> Capture | None:
    """Return the variant whose offline figures are nearest to the served ones, else the first."""
    served = known.served
    if served is None or not served.survival:
        return known.captures[0] if known.captures else None
    first = served.survival[0]

    def distance(capture: Capture) -> float:
        view = _check_of(known.checks, capture.slots)
        return abs(view.served_survival[0] - first) if view else 1.0

    return min(known.captures, key=distance, default=None)


def _check_of(checks: Sequence[CheckView], slots: Sequence[int] | None) -> CheckView | None:
    wiring = tuple(f"hs[{slot}]" for slot in slots or ())
    return next((view for view in checks if view.wiring == wiring), None)


def _offline(
    known: DraftEvidence, capture: Capture | None
) -> tuple[CheckView | None, CheckView | None]:
    """Return the figures with the trained layers, and with those that are handed over."""
    as_served = _check_of(known.checks, capture.slots) if capture else None
    if known.search is None:
        return as_served, as_served
    wiring = known.search.best.hypothesis.wiring
    right = next((view for view in known.checks if view.wiring == wiring), None)
    if as_served is right and known.as_is is not None:
        as_served = known.as_is
    return right, as_served


def _overhead(known: DraftEvidence) -> float | None:
    served = known.served
    if served is None or not served.tok_s or not known.baseline_tok_s:
        return None
    if served.accept_length is None:
        return None
    return served.accept_length * known.baseline_tok_s / served.tok_s


def _ceiling(served: ServedFigures | None) -> int | None:
    """Return what a round can yield: counters tell it where they tell positions."""
    if served is None:
        return None
    return len(served.survival) + 1 if served.survival else served.ceiling


def _outlook(
    finding: Finding, known: DraftEvidence, right: CheckView | None, overhead: float | None
) -> tuple[str, ...]:
    """Return what the fix of a draft that is served wrongly would gain, at the same cost."""
    served = known.served
    if finding.verdict not in _MENDED or right is None or overhead is None or served is None:
        return ()
    length, now = right.served_length, served.accept_length
    if now is None or length <= now:
        return ()
    gain = (
        f"a round costs {overhead:.2f} decoding steps, so that mended it would give about "
        f"{length / overhead:.2f} times the tok/s without speculation, not {now / overhead:.2f}"
    )
    return (gain,)


def _algorithm(known: DraftEvidence) -> Finding | None:
    if known.algorithm is None or "eagle3" not in known.inspect.architecture.lower():
        return None
    if known.algorithm.upper() == "EAGLE3":
        return None
    served = known.served.accept_length if known.served else None
    return Finding(
        verdict=DraftVerdict.ALGORITHM,
        sentence=f"an EAGLE-3 draft is served with the algorithm {known.algorithm}",
        evidence=(
            f"the draft is a {known.inspect.architecture}",
            "its fc is skipped without an error, and nothing is accepted",
            *([] if served is None else [f"served accept length {served:.2f}"]),
        ),
        fixes=("set speculation.algorithm = EAGLE3 in the profile and restart",),
    )


def _serving(known: DraftEvidence, right: CheckView | None) -> Finding | None:
    """Judge a draft that is right offline with the very layers that are served, and not there."""
    served = known.served
    if served is None or right is None or not served.survival or not right.served_survival:
        return None
    if served.temperature != 0.0:
        return None  # Sampled tokens are not the target's first choices, which offline expects.
    first, expected = served.survival[0], right.served_survival[0]
    error = right.served.survival_se[0] if right.served else right.steps[0].survival_se
    gap = max(SAME_STEP, 3 * error)
    if expected - first <= gap:
        return None
    return Finding(
        verdict=DraftVerdict.SERVING,
        sentence=f"the layers are right, and the first step is {first:.2f} served, "
        f"{expected:.2f} offline",
        evidence=(
            f"more than {gap:.2f} apart: the server feeds the draft otherwise, or other text",
        ),
        fixes=(
            "restart: a server reads a draft's files when it starts",
            "capture hidden states over the prompts that are served (--capture), at temperature 0",
        ),
        certain=False,
    )


def _remedies(finding: Finding, known: DraftEvidence) -> tuple[str, ...]:
    """Return the engine's settings for a verdict; of norms only what concerns the flags told of."""
    lines = known.remedies.get(finding.verdict, ())
    flags = set(_NORM_FLAG.findall(finding.sentence))
    if finding.verdict is not DraftVerdict.NORMS or not flags:
        return lines
    return tuple(line for line in lines if flags.intersection(_NORM_FLAG.findall(line)))


def _recurrence(known: DraftEvidence, right: CheckView | None) -> Finding | None:
    served = known.served
    if served is None or right is None or len(served.survival) < 2 or len(right.steps) < 2:
        return None
    offline = right.served_survival
    if abs(served.survival[0] - offline[0]) > SAME_STEP or min(served.survival[0], offline[0]) <= 0:
        return None
    second = served.survival[1] / served.survival[0]
    expected = offline[1] / offline[0]
    if second >= _COLLAPSE * expected:
        return None
    flags = [p for p in known.inspect.problems if p.slug in {"norm-output-recurrence", "norm-flag"}]
    return Finding(
        verdict=DraftVerdict.RECURRENCE,
        sentence="the first step is as offline, the later ones collapse: recurrence mismatch",
        evidence=(
            f"first step {served.survival[0]:.2f} served, {offline[0]:.2f} offline",
            f"second after first {second:.2f} served, {expected:.2f} offline",
            *(str(problem) for problem in flags),
        ),
        fixes=(
            "check norm_output, norm_before_residual and the RoPE positions of later steps",
            "try without the draft's CUDA graph",
        ),
        certain=False,
    )


def _useless(known: DraftEvidence) -> Finding | None:
    served = known.served
    if served is None or known.search is not None:
        return None
    if served.survival:
        second = served.survival[1] if len(served.survival) > 1 else 0.0
        if served.survival[0] >= _USELESS_FIRST or second >= _USELESS_SECOND:
            return None
        told = f"first step {served.survival[0]:.2f}, second {second:.2f} served"
    else:
        # A server's counters tell no positions.
        if served.accept_length is None or served.accept_length >= 1 + _USELESS_FIRST:
            return None
        told = f"served accept length {served.accept_length:.2f}"
    return Finding(
        verdict=DraftVerdict.WIRING,
        sentence="almost nothing is accepted: the draft is fed what it was not trained on",
        evidence=(told, *conventions(known)),
        fixes=("diagnose with --capture, to find the layers it was trained on",),
        certain=False,
    )


def _speed(known: DraftEvidence, right: CheckView | None, overhead: float | None) -> Finding:
    served = known.served
    length = served.accept_length if served else None
    available = right.served_length if right else None
    evidence = []
    if length is not None:
        evidence.append(f"served accept length {length:.2f}")
    if available is not None:
        evidence.append(f"offline accept length {available:.2f}")
    if overhead is not None:
        evidence.append(f"a round costs {overhead:.2f} decoding steps: break-even {overhead:.2f}")
    reached = length if length is not None else available
    needed = overhead if overhead is not None else _WEAK_LENGTH
    told = tuple(evidence)
    if reached is None:
        return _undecided(known, told)
    best = max(value for value in (length, available) if value is not None)
    ceiling = _ceiling(served)
    beyond = ceiling is not None and overhead is not None and overhead >= ceiling
    if overhead is not None and length is not None and length < overhead:
        costly = f"break-even is {overhead:.2f} and it has {length:.2f}"
        if beyond or overhead <= best * _NEAR:
            return Finding(
                verdict=DraftVerdict.OVERHEAD,
                sentence=f"no draft could pay: a round yields at most {ceiling} tokens, {costly}"
                if beyond
                else f"the draft is as good as offline, but {costly}",
                evidence=told,
                fixes=("draft fewer tokens, use top-k 1 and CUDA graphs, or smaller batches",),
            )
    if reached < needed:
        needs = "break-even" if overhead is not None else "use"
        return _too_few(
            known, right, f"accept length {reached:.2f}, {needs} needs {needed:.2f}", told
        )
    if overhead is None and length is None:
        return Finding(
            verdict=DraftVerdict.FINE,
            sentence=f"nothing wrong found offline: {reached:.2f} tokens a step are available",
            evidence=told,
            fixes=("probe the server to compare",),
            certain=False,
        )
    if right is None and reached < _WEAK_LENGTH:
        return _too_few(known, right, f"accept length {reached:.2f} pays, and is low", told)
    doubts = doubts_of(known)
    return Finding(
        verdict=DraftVerdict.FINE,
        sentence=f"nothing wrong found: accept length {reached:.2f}",
        evidence=(*told, *doubts),
        certain=overhead is not None and not doubts,
    )


def _too_few(
    known: DraftEvidence, offline: CheckView | None, few: str, told: tuple[str, ...]
) -> Finding:
    """Judge too low an accept length; only an offline run tells a weak draft from a wrong feed."""
    served = known.served.accept_length if known.served else None
    if offline is None:
        return Finding(
            verdict=DraftVerdict.WEAK,
            sentence=f"{few}: the draft is weak, or fed what it was not trained on",
            evidence=(*told, *conventions(known)),
            fixes=("diagnose with --capture, to find which of them",),
            certain=False,
        )
    if served is not None and offline.served_length > served * _NEAR:
        return Finding(
            verdict=DraftVerdict.SERVING,
            sentence=f"{few}, and offline the draft reaches {offline.served_length:.2f}",
            evidence=told,
            fixes=(
                "restart: a server reads a draft's files when it starts",
                "probe it at temperature 0, with the prompts that were captured",
            ),
            certain=False,
        )
    return Finding(
        verdict=DraftVerdict.WEAK,
        sentence=f"the draft is weak: {few}",
        evidence=(*told, *doubts_of(known)),
        fixes=(
            "train it longer, on the target's own answers to such prompts",
            "if it was better elsewhere, compare its files: damaged weights look the same",
        ),
    )


def _undecided(known: DraftEvidence, told: tuple[str, ...]) -> Finding:
    errors: list[Problem] = [p for p in known.inspect.problems if p.severity is Severity.ERROR]
    if errors:
        return Finding(
            verdict=DraftVerdict.UNKNOWN,
            sentence=f"the draft's files are wrong: {errors[0]}",
            evidence=(*told, *(str(error) for error in errors)),
            fixes=("repair the files first",),
        )
    return Finding(
        verdict=DraftVerdict.UNKNOWN,
        sentence="not enough is known",
        evidence=(*told, *conventions(known)),
        fixes=("probe the server, or give hidden states with --hidden or --capture",),
        certain=False,
    )
