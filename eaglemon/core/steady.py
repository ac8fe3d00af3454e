"""The rate while every user of a probe had a request under way: without its ramp and its tail."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpan:
    """One request on the probe's clock."""

    sent_at: float
    ended_at: float
    well: bool
    """Whether it ended well: only then its tokens enter a figure."""
    arrivals: tuple[tuple[float, int | None], ...]
    """When tokens came, and how many; ``None`` where the chunk did not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyRate:
    """Tokens over time while all users were busy."""

    tok_s: float
    share: float
    """Of the time in which all were busy, what it is over: 1 where all requests ended well."""


def steady_rate(requests: Sequence[RequestSpan], users: int) -> SteadyRate | None:
    """Return the rate from when the last user had begun to when the first found nothing to do.

    The time of a request that did not end well is left out, with what others got in it: its own
    tokens enter no figure, and without them the rate would be too low. ``None`` where nothing is
    left, where each user had less than two requests, or where chunks do not tell their tokens.
    """
    if len(requests) < 2 * users:
        return None
    begun = sorted(request.sent_at for request in requests)
    start = begun[users - 1]
    # A user that ends later than the last request began has nothing to do any more.
    end = min((r.ended_at for r in requests if r.ended_at > begun[-1]), default=start)
    kept = _without((start, end), [(r.sent_at, r.ended_at) for r in requests if not r.well])
    duration = sum(until - since for since, until in kept)
    if duration <= 0:
        return None
    total = 0
    for request in requests:
        for at, tokens in request.arrivals:
            if request.well and any(since < at <= until for since, until in kept):
                if tokens is None:
                    return None
                total += tokens
    if not total:
        return None
    return SteadyRate(tok_s=total / duration, share=duration / (end - start))


def _without(
    whole: tuple[float, float], holes: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return what is left of a span of time, in order."""
    left = []
    since, end = whole
    for begin, until in sorted(holes):
        if begin > since:
            left.append((since, min(begin, end)))
        since = max(since, until)
    if since < end:
        left.append((since, end))
    return [(begin, until) for begin, until in left if until > begin]
