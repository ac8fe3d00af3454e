"""Probes as values: the plan, what was seen of each request, and the figures derived from it.

Raw observations are kept and figures derived, so a definition can be corrected later.
All times are seconds; request times count from the moment the request was sent.
"""

import hashlib
import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from eaglemon.core.log_figures import LinesAcceptance
from eaglemon.core.speculation import AcceptCounts, add_counts
from eaglemon.core.steady import RequestSpan, SteadyRate, steady_rate

LAG_LIMIT_S = 0.003
"""A first token may be told too late by no more than this."""
KERNEL_SHARE, OVERLOADED_S = 0.99, 0.010
"""Arrivals that the kernel stamped are in time, unless the host is so late that its network is."""
CPU_LIMIT = 0.8
"""A generator busier than this share of a core cannot be trusted to be in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt of a workload."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What a probe does."""

    workload: str
    prompts: tuple[Prompt, ...]
    """Used in turn; fewer prompts than requests repeat, each time with another nonce. Results
    leave them out (``without_prompts``)."""
    prompts_sha256: str = ""
    """In results: which prompts they were."""
    requests: int
    concurrency: int
    warmup: int = 2
    """Requests thrown away before the clock starts."""
    max_tokens: int = 128
    temperature: float = 0.0
    ignore_eos: bool = False
    """``True`` forces ``max_tokens`` on every request; ``False`` lets the model end naturally."""
    nonce: str = ""
    """Put in front of each prompt with the request's number, so that no prefix cache helps."""
    request_limit_s: float = 300.0
    total_limit_s: float = 1800.0
    duration_s: float | None = None
    """No request begins later than this; ``None``: all ``requests`` are sent."""
    seed: int | None = None
    """Shuffles the prompts, the same for the same seed, and is the engine's sampling seed where
    the temperature is above 0; ``None`` keeps their order and lets the engine draw."""
    flush: bool = False
    """Empty the server's prefix cache before the warm-up."""
    from_host: bool = True
    """Send the load from the host itself; ``False`` sends it from here, over the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request of a probe: ``prefix`` and then the text of a prompt."""

    number: int
    prompt: Prompt
    prefix: str = ""


def planned_requests(plan: ProbePlan, *, first: int, count: int) -> tuple[PlannedRequest, ...]:
    """Return ``count`` requests of the plan; ``first`` numbers go before them (the warm-up).

    The nonce leads, so that not even the first block of a prompt is in a prefix cache.
    """
    prompts = list(plan.prompts)
    if plan.seed is not None:
        random.Random(plan.seed).shuffle(prompts)  # noqa: S311 -- repeatable, no secret
    return tuple(
        PlannedRequest(
            number=number,
            prompt=prompts[number % len(prompts)],
            prefix=f"[{plan.nonce}-{first + number}] " if plan.nonce else "",
        )
        for number in range(count)
    )


def without_prompts(plan: ProbePlan) -> ProbePlan:
    """Return the plan as results tell it: with a hash of its prompts instead of their texts."""
    digest = hashlib.sha256()
    for prompt in plan.prompts:
        for part in (prompt.id, prompt.text):
            data = part.encode()
            digest.update(b"%d:%s" % (len(data), data))
    return replace(plan, prompts=(), prompts_sha256=digest.hexdigest())


class RequestStatus(StrEnum):
    """How a request ended; only ``ok`` requests enter the figures."""

    OK = "ok"
    FAILED = "failed"
    CUT = "cut"
    """The stream stopped before its end."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """New tokens of one stream chunk; under speculation a chunk carries several."""

    at_s: float
    tokens: int | None
    """``None``: the chunk did not tell how many."""


def tokens_of(arrivals: Iterable[Arrival]) -> int | None:
    """Return the tokens of chunks, ``None`` where one does not tell its own."""
    total = 0
    for arrival in arrivals:
        if arrival.tokens is None:
            return None
        total += arrival.tokens
    return total


def _sum_told(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    told = [count for count in known if count is not None]
    return sum(told) if len(told) == len(known) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """All that was seen of one request."""

    number: int
    prompt_id: str
    status: RequestStatus
    sent_at: float
    """Seconds since the probe's clock started."""
    took_s: float
    arrivals: tuple[Arrival, ...] = ()
    completion_tokens: int | None = 0
    """``None``: neither the chunks nor the end of the answer told."""
    prompt_tokens: int | None = None
    counts: AcceptCounts | None = None
    """The engine's own per-request speculation figures, where it tells them."""
    error: str | None = None
    request_id: str | None = None
    """The engine's own, as in its log."""

    @property
    def ttft_s(self) -> float | None:
        """Time to the first token."""
        return self.arrivals[0].at_s if self.arrivals else None

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens per second after the first chunk; ``None`` for one chunk, or tokens not told."""
        tokens = tokens_of(self.arrivals[1:])
        if len(self.arrivals) < 2 or tokens is None:
            return None
        duration = self.arrivals[-1].at_s - self.arrivals[0].at_s
        return tokens / duration if duration > 0 else None

    @property
    def received_tokens(self) -> int | None:
        """All tokens that arrived, ``None`` where that is not told."""
        told = tokens_of(self.arrivals)
        return self.completion_tokens if told is None else told

    @property
    def ended_at(self) -> float:
        """Seconds since the probe's clock started."""
        return self.sent_at + self.took_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCounts:
    """How far a load is, told while it runs."""

    at_s: float
    """Seconds since the load's clock started."""
    begun: int
    ended: int
    tokens: int
    """Received so far, of requests under way too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorHealth:
    """How the load generator itself did: what it delayed, the figures are wrong by."""

    cpu_share: float
    """Of one core."""
    lag_median_s: float
    lag_p95_s: float
    """How late its event loop ran what was due."""
    lag_max_s: float
    kernel_share: float = 0.0
    """Of the arrivals, those that the kernel has stamped, whatever the generator was at."""

    @property
    def in_time(self) -> bool:
        """Whether times to first tokens are right within the bound."""
        stamped = self.kernel_share >= KERNEL_SHARE and self.lag_p95_s <= OVERLOADED_S
        return not self.lagging or stamped

    @property
    def lagging(self) -> bool:
        """Whether it did what was due more than the bound too late."""
        return self.lag_p95_s > LAG_LIMIT_S or self.cpu_share > CPU_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median and tail of a figure over requests."""

    median: float
    p90: float
    p99: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFigures:
    """Figures over the requests that ended well; ``None`` where nothing tells."""

    ok: int = 0
    failed: int = 0
    cut: int = 0
    cancelled: int = 0
    duration_s: float = 0.0
    """From the first measured request sent to the last one ended."""
    completion_tokens: int | None = 0
    """``None`` where an answer does not tell."""
    total_tok_s: float | None = None
    """All tokens over ``duration_s``, all requests together."""
    decode_tok_s: Spread | None = None
    """Per request, without its first chunk."""
    ttft_s: Spread | None = None
    user_tok_s: float | None = None
    """All tokens after first chunks over all time after them: what one user sees on average."""
    token_time_s: Spread | None = None
    """Time per output token, per request: the inverse of ``decode_tok_s``."""
    steady_tok_s: float | None = None
    """All tokens that arrived while every user had a request under way, over that time."""
    steady_share: float | None = None
    """Of that time, what it is over: less than 1 where requests did not end well."""
    chunk_gap_s: Spread | None = None
    """Between chunks: the time of one verify step, not of one token."""
    counts: AcceptCounts | None = None
    accept_length: float | None = None
    """Tokens per verify step, the bonus token included, sum over sum of ``counts``."""
    per_position: tuple[float, ...] = ()
    """Survival: share of verify steps in which the first i+1 draft tokens were all accepted."""
    accept_source: str | None = None
    """Where it comes from: ``per-request answers``, ``counter difference`` or ``log lines``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeProgress:
    """A probe that is under way or done."""

    server_id: str
    plan: ProbePlan
    state: str
    """``warming-up``, ``running``, ``done``, ``cancelled`` or ``failed``."""
    done: int
    elapsed_s: float
    remaining_s: float | None
    figures: ProbeFigures
    records: tuple[RequestRecord, ...] = ()
    """Filled when the probe has ended."""
    engine: str = ""
    """Name of the server's engine; empty in results of before."""
    driver: str = ""
    """Where the load comes from, in words."""
    error: str | None = None
    live: LiveCounts | None = None
    """While it runs."""
    live_tok_s: float | None = None
    """All tokens received lately, per second."""
    generator: GeneratorHealth | None = None
    claims_first_tokens: bool = True
    """Whether times to first tokens are the server's: not where the load came over the link or its
    generator was late."""
    claims_speed: bool = True
    """Whether tok/s are the server's: not where the load came over the link and was late."""
    counters_read: bool = False
    """Whether the server's counters were read before and after: then no accept length means that
    nothing was verified, and otherwise that nothing tells."""
    foreign_tokens: int | None = None
    """Tokens that the server generated for others meanwhile; ``None`` where it does not tell."""
    notes: tuple[str, ...] = ()
    """What limits the trust in the figures (a lagging generator, other people's traffic)."""


def figures_of(
    records: Sequence[RequestRecord],
    *,
    users: int | None = None,
    counter_difference: AcceptCounts | None = None,
    log_lines: LinesAcceptance | None = None,
) -> ProbeFigures:
    """Return the figures over ``records``.

    The engine's per-request answers come first; where no request told any, the difference of
    the server's counters is used, and then its log lines, which may tell an accept length
    without counts. Sums are over requests that ended well. ``users`` is how many
    requests were under way at a time; without it the steady part is not known.
    """
    ok = [record for record in records if record.status is RequestStatus.OK]
    statuses = [record.status for record in records]
    start = min((record.sent_at for record in records), default=0.0)
    end = max((record.ended_at for record in records), default=0.0)
    tokens = _sum_told(record.completion_tokens for record in ok)
    counts = add_counts(record.counts for record in ok if record.counts is not None)
    source = "per-request answers" if counts is not None else None
    if counts is None and counter_difference is not None and counter_difference.steps > 0:
        counts, source = counter_difference, "counter difference"
    length = counts.accept_length if counts is not None else None
    if counts is None and log_lines is not None:
        counts, length, source = log_lines.counts, log_lines.accept_length, "log lines"
    steady = _steady(records, users)
    gaps = [
        later.at_s - earlier.at_s
        for record in ok
        for earlier, later in zip(record.arrivals, record.arrivals[1:], strict=False)
    ]
    return ProbeFigures(
        ok=len(ok),
        failed=statuses.count(RequestStatus.FAILED),
        cut=statuses.count(RequestStatus.CUT),
        cancelled=statuses.count(RequestStatus.CANCELLED),
        duration_s=end - start,
        completion_tokens=tokens,
        total_tok_s=tokens / (end - start) if end > start and tokens else None,
        user_tok_s=_user_tok_s(ok),
        steady_tok_s=steady.tok_s if steady else None,
        steady_share=steady.share if steady else None,
        token_time_s=spread([1 / r.decode_tok_s for r in ok if r.decode_tok_s]),
        decode_tok_s=spread([r.decode_tok_s for r in ok if r.decode_tok_s is not None]),
        ttft_s=spread([r.ttft_s for r in ok if r.ttft_s is not None]),
        chunk_gap_s=spread(gaps),
        counts=counts,
        accept_length=length,
        per_position=counts.survival if counts else (),
        accept_source=source,
    )


def spread(values: Sequence[float]) -> Spread | None:
    """Return median, 90th and 99th percentile (nearest rank), ``None`` of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(
        median=statistics.median(ordered),
        p90=_nearest_rank(ordered, 0.90),
        p99=_nearest_rank(ordered, 0.99),
        count=len(ordered),
    )


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _user_tok_s(ok: Sequence[RequestRecord]) -> float | None:
    timed = [record.arrivals for record in ok if record.decode_tok_s is not None]
    tokens = tokens_of(arrival for arrivals in timed for arrival in arrivals[1:])
    time_s = sum(arrivals[-1].at_s - arrivals[0].at_s for arrivals in timed)
    return tokens / time_s if time_s > 0 and tokens is not None else None


def _steady(records: Sequence[RequestRecord], users: int | None) -> SteadyRate | None:
    if users is None:
        return None
    spans = [
        RequestSpan(
            sent_at=record.sent_at,
            ended_at=record.ended_at,
            well=record.status is RequestStatus.OK,
            arrivals=tuple((record.sent_at + one.at_s, one.tokens) for one in record.arrivals),
        )
        for record in records
    ]
    return steady_rate(spans, users)
