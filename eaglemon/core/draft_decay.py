"""A draft that is good at first and not later: beyond its positions, along the output, in time."""

from collections.abc import Sequence

from eaglemon.core.draft_verdict import (
    DraftEvidence,
    DraftVerdict,
    Finding,
    ServedRequest,
)

_FALL = 0.85
"""Late over early accept length that counts as a decay."""
_SURE_SE = 3.0
_ENOUGH_STEPS = 200


def context_finding(known: DraftEvidence) -> Finding | None:
    """Judge requests that reach beyond the positions that the draft knows."""
    short = [p for p in known.inspect.problems if p.slug == "draft-context"]
    limit, served = known.inspect.max_positions, known.served
    if limit is None or served is None:
        return None
    within = _length([r for r in served.requests if r.context_tokens <= limit])
    beyond = _length([r for r in served.requests if r.context_tokens > limit])
    falls = within is not None and beyond is not None and beyond < _FALL * within
    longest = served.longest_prompt_tokens
    reaches = bool(short) and longest is not None and longest > limit
    if not (falls or reaches):
        return None
    evidence = [str(problem) for problem in short]
    if within is not None and beyond is not None:
        evidence.append(
            f"served accept length {within:.2f} up to {limit:,} tokens, {beyond:.2f} beyond"
        )
    which = "prompts" if reaches else "requests"
    farthest = longest if reaches else max(r.context_tokens for r in served.requests)
    return Finding(
        verdict=DraftVerdict.CONTEXT,
        sentence=f"{which} of {farthest:,} tokens reach beyond the draft's {limit:,} positions",
        evidence=tuple(evidence),
        fixes=(f"limit the context to {limit:,}, or use a draft trained for more",),
        certain=falls,
    )


def decay_finding(known: DraftEvidence) -> Finding | None:
    """Judge an accept length that falls along the output, or since an earlier probe."""
    served = known.served
    if served is None:
        return None
    along = served.along
    if along is not None and along.late < _FALL * along.early and along.fall_se > _SURE_SE:
        rope = [p for p in known.inspect.problems if p.where == "rope"]
        how = f"{along.requests} outputs of about {along.tokens} tokens"
        return Finding(
            verdict=DraftVerdict.DECAY,
            sentence=f"the accept length falls along the output: {along.early:.2f} in the first "
            f"half, {along.late:.2f} in the second",
            evidence=(
                f"{how}, {along.fall_se:.1f} standard errors",
                *(str(problem) for problem in rope),
            ),
            fixes=(
                "compare rope_scaling and rope_theta of draft and target in their config.json"
                if rope
                else "the draft was trained on shorter texts: train it at the length it serves",
                "probe with a lower max_tokens to see to which length it pays",
            ),
            certain=not rope,
        )
    before, now = served.earlier_length, served.accept_length
    if before is not None and now is not None and now < _FALL * before:
        return Finding(
            verdict=DraftVerdict.DECAY,
            sentence=f"the accept length has fallen since an earlier probe: {before:.2f} then, "
            f"{now:.2f} now",
            evidence=("same prompts, same server",),
            fixes=("restart the server and probe again: if it is back, the engine degrades",),
            certain=False,
        )
    return None


def _length(requests: Sequence[ServedRequest]) -> float | None:
    steps = sum(request.steps for request in requests)
    if steps < _ENOUGH_STEPS:
        return None
    return 1 + sum(request.accepted for request in requests) / steps
