"""What a probe tells of a draft: acceptance, and how it goes along the output. Pure."""

import math
import statistics
from collections.abc import Sequence

from eaglemon.core.draft_verdict import LengthAlong, ServedFigures, ServedRequest
from eaglemon.core.probe import ProbeProgress, RequestRecord, RequestStatus
from eaglemon.core.views import AcceptanceView
from eaglemon.errors import UsageError

_LONG_OUTPUT = 96
_ENOUGH_REQUESTS = 4
_SAME_LENGTH = 0.05
"""Tokens per chunk are accept lengths where they agree with the engine's own to this share."""


def served_figures(probe: ProbeProgress, earlier: ProbeProgress | None = None) -> ServedFigures:
    """Return what ``probe`` tells; ``earlier`` is one of the same server, some time before.

    Raises ``UsageError`` where the two had different prompts.
    """
    figures, plan = probe.figures, probe.plan
    if earlier is not None and earlier.plan.prompts_sha256 != plan.prompts_sha256:
        raise UsageError(
            "the earlier probe had other prompts, so it tells nothing of a decay",
            hint="probe with the same workload",
        )
    ok = [record for record in probe.records if record.status is RequestStatus.OK]
    prompts = [record.prompt_tokens for record in probe.records if record.prompt_tokens is not None]
    return ServedFigures(
        accept_length=figures.accept_length,
        survival=figures.per_position,
        tok_s=figures.user_tok_s,
        source=figures.accept_source or "",
        temperature=plan.temperature,
        longest_prompt_tokens=max(prompts, default=None),
        along=length_along(ok, figures.accept_length),
        requests=tuple(
            ServedRequest(
                context_tokens=record.prompt_tokens + record.completion_tokens,
                steps=record.counts.steps,
                accepted=record.counts.accepted,
            )
            for record in ok
            if record.counts is not None
            and record.prompt_tokens is not None
            and record.completion_tokens is not None
        ),
        earlier_length=None if earlier is None else earlier.figures.accept_length,
    )


def counted_figures(seen: AcceptanceView | None) -> ServedFigures | None:
    """Return what the server's own counters tell, for want of a probe; ``None``: nothing."""
    if seen is None or seen.accept_length is None:
        return None
    return ServedFigures(
        accept_length=seen.accept_length,
        survival=seen.per_position,
        source=seen.source,
        temperature=None,
    )


def length_along(
    records: Sequence[RequestRecord], accept_length: float | None
) -> LengthAlong | None:
    """Compare the tokens of each verify step in the first and second half of the outputs.

    A chunk of a stream is a verify step as long as nothing merged them on the way: where chunks
    are longer than the engine's ``accept_length``, ``None`` is returned, as for short outputs.
    """
    halves = [
        split
        for record in records
        if (record.completion_tokens or 0) >= _LONG_OUTPUT
        and (split := _halves(record)) is not None
    ]
    if accept_length is None or len(halves) < _ENOUGH_REQUESTS:
        return None
    tokens = sum(sum(early) + sum(late) for early, late in halves)
    chunks = sum(len(early) + len(late) for early, late in halves)
    if abs(tokens / chunks / accept_length - 1) > _SAME_LENGTH:
        return None
    means = [(statistics.fmean(early), statistics.fmean(late)) for early, late in halves]
    falls = [early - late for early, late in means]
    error = statistics.stdev(falls) / math.sqrt(len(falls))
    fall = statistics.fmean(falls)
    return LengthAlong(
        early=statistics.fmean(early for early, _ in means),
        late=statistics.fmean(late for _, late in means),
        fall_se=fall / error if error > 0 else math.copysign(math.inf, fall) if fall else 0.0,
        requests=len(halves),
        tokens=round(statistics.median(record.completion_tokens or 0 for record in records)),
    )


def _halves(record: RequestRecord) -> tuple[list[int], list[int]] | None:
    """Return the tokens of each chunk in both halves; the first is the prompt's, the last cut."""
    chunks = [a.tokens for a in record.arrivals[1:-1] if a.tokens is not None]
    half, passed = sum(chunks) / 2, 0
    for place, tokens in enumerate(chunks):
        passed += tokens
        if passed >= half:
            early, late = chunks[: place + 1], chunks[place + 1 :]
            return (early, late) if early and late else None
    return None
