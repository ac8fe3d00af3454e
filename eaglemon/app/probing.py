"""Runs a probe: a bounded load on one server, measured request by request, live while it runs.

The load comes from this client, over the host's connection: one HTTP client per virtual user,
since a shared pool delays first tokens at high concurrency. Times are stamped when bytes arrive.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator

from eaglemon.app.keeper import Keeper
from eaglemon.app.server_metrics import read_gauges
from eaglemon.core.probe import (
    Arrival,
    ProbeFigures,
    ProbePlan,
    ProbeProgress,
    Prompt,
    RequestRecord,
    RequestStatus,
    figures_of,
)
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.sse import SseDecoder
from eaglemon.engines.base import (
    AnswerSeen,
    Gauges,
    GenerateRequest,
    StreamDecoder,
    StreamFailed,
    TokensSeen,
)
from eaglemon.errors import HostError, ProbeError
from eaglemon.io.clock import Clock
from eaglemon.io.http import HttpClient, HttpError, HttpLimits

COUNTERS_SETTLE_S = 5.0
"""Counters of the last requests may come this late."""
_POLL_S = 0.25
_SHOWN_BODY = 200


class Probe:
    """One probe of one server; ``run`` once."""

    def __init__(
        self, keeper: Keeper, plan: ProbePlan, *, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._keeper = keeper
        self._plan = plan
        self._clock = clock
        self._changed = changed
        self._records: list[RequestRecord] = []
        self._numbers = itertools.count()
        self._started = clock.monotonic()
        self._notes: list[str] = []

    async def run(self) -> ProbeProgress:
        """Run to the end; raises ``ProbeError`` when nothing could be measured.

        When cancelled, what was measured so far stays in the keeper as ``cancelled``.
        """
        plan = self._plan
        if plan.requests < 1 or plan.concurrency < 1 or not plan.prompts:
            raise ProbeError("a probe needs at least one request, one user and one prompt")
        try:
            async with asyncio.timeout(plan.total_limit_s):
                await self._load(plan.warmup, state="warming-up")
                self._records.clear()
                before = await self._gauges()
                self._started = self._clock.monotonic()
                await self._load(plan.requests, state="running")
            figures = figures_of(
                self._records, counter_difference=await self._counted_since(before)
            )
        except TimeoutError as error:
            self._show("failed", error=f"not done within {plan.total_limit_s:.0f} s")
            raise ProbeError(
                f"the probe was not done within {plan.total_limit_s:.0f} s",
                hint="ask for fewer requests or tokens",
            ) from error
        except asyncio.CancelledError:
            self._show("cancelled")
            raise
        if figures.ok == 0:
            reasons = sorted({record.error or "no tokens" for record in self._records})
            self._show("failed", error=reasons[0])
            raise ProbeError(
                f"none of {len(self._records)} requests ended well: {reasons[0]}",
                hint="look at the server's log",
            )
        return self._show("done", figures=figures)

    async def _load(self, requests: int, *, state: str) -> None:
        todo = iter(range(requests))
        users = min(self._plan.concurrency, requests)
        self._show(state)
        async with asyncio.TaskGroup() as group:
            for _ in range(users):
                group.create_task(self._user(todo, state))

    async def _user(self, todo: Iterator[int], state: str) -> None:
        http = self._keeper.new_http()
        try:
            for number in todo:
                self._records.append(await self._request(http, number))
                self._show(state)
        finally:
            await http.close()

    async def _request(self, http: HttpClient, number: int) -> RequestRecord:
        plan, engine = self._plan, self._keeper.engine
        prompt = plan.prompts[number % len(plan.prompts)]
        call = engine.generate(
            GenerateRequest(
                prompt=_with_nonce(prompt, plan.nonce, next(self._numbers)),
                model=self._keeper.model_name,
                max_tokens=plan.max_tokens,
                temperature=plan.temperature,
                ignore_eos=plan.ignore_eos,
            )
        )
        sent = self._clock.monotonic()
        answer = _Answer(engine.stream_decoder())
        try:
            async with asyncio.timeout(plan.request_limit_s):
                limits = HttpLimits(connect_s=10.0, read_s=plan.request_limit_s)
                async with http.stream(
                    call.method, call.path, body=call.body, limits=limits
                ) as stream:
                    if stream.status == 200:
                        async for chunk in stream.chunks():
                            answer.feed(chunk, self._clock.monotonic() - sent)
                    else:
                        body = b"".join([chunk async for chunk in stream.chunks()])
                        text = body[:_SHOWN_BODY].decode("utf-8", "replace").strip()
                        answer.failure = f"HTTP {stream.status}: {text}"
        except HttpError as error:
            answer.broken = error.message
        except TimeoutError:
            answer.broken = f"no end within {plan.request_limit_s:.0f} s"
        took = self._clock.monotonic() - sent
        return answer.record(number, prompt.id, sent_at=sent - self._started, took_s=took)

    async def _gauges(self) -> Gauges | None:
        """Return a reading of the counters, ``None`` when the server does not serve any."""
        try:
            return await read_gauges(self._keeper.http(), self._keeper.engine)
        except HostError:
            return None

    async def _counted_since(self, before: Gauges | None) -> AcceptCounts | None:
        """Return what the server counted for this probe, waiting until all of it is there."""
        if before is None or before.accept is None:
            return None
        expected = sum(record.completion_tokens for record in self._records)
        deadline = self._clock.monotonic() + COUNTERS_SETTLE_S
        while True:
            after = await self._gauges()
            if after is None or after.accept is None:
                return None
            counts = after.accept.since(before.accept)
            grown = (after.generation_tokens or 0.0) - (before.generation_tokens or 0.0)
            if grown >= expected or self._clock.monotonic() > deadline:
                if counts is not None and grown > expected * 1.02 + 8:
                    self._notes.append(
                        f"the server generated {grown:.0f} tokens while this probe received "
                        f"{expected}: other traffic disturbs the figures"
                    )
                return counts
            await self._clock.sleep(_POLL_S)

    def _show(
        self, state: str, *, figures: ProbeFigures | None = None, error: str | None = None
    ) -> ProbeProgress:
        ended = state in {"done", "cancelled", "failed"}
        done = len(self._records)
        elapsed = self._clock.monotonic() - self._started
        remaining = None
        if state == "running" and done:
            remaining = elapsed / done * (self._plan.requests - done)
        progress = ProbeProgress(
            server_id=self._keeper.id,
            plan=self._plan,
            state=state,
            done=done,
            elapsed_s=elapsed,
            remaining_s=remaining,
            figures=figures or figures_of(self._records),
            records=tuple(self._records) if ended else (),
            error=error,
            notes=tuple(self._notes),
        )
        self._keeper.probe = progress
        self._changed()
        return progress


class _Answer:
    """Collects one streamed answer."""

    def __init__(self, decoder: StreamDecoder) -> None:
        self._decoder = decoder
        self._sse = SseDecoder()
        self._arrivals: list[Arrival] = []
        self._end: AnswerSeen | None = None
        self.failure: str | None = None
        """The engine said that it failed."""
        self.broken: str | None = None
        """The stream broke off."""

    def feed(self, chunk: bytes, at_s: float) -> None:
        """Take bytes that arrived ``at_s`` after the request was sent."""
        for event in self._sse.feed(chunk):
            for seen in self._decoder.feed(event):
                match seen:
                    case TokensSeen(new_tokens=tokens) if tokens > 0:
                        self._arrivals.append(Arrival(at_s=at_s, tokens=tokens))
                    case AnswerSeen():
                        self._end = seen
                    case StreamFailed(message=message):
                        self.failure = message
                    case _:
                        pass

    def record(
        self, number: int, prompt_id: str, *, sent_at: float, took_s: float
    ) -> RequestRecord:
        """Return the record of the request."""
        received = sum(arrival.tokens for arrival in self._arrivals)
        end = self._end
        if self.failure is not None or (self.broken is not None and not self._arrivals):
            status = RequestStatus.FAILED
        elif self.broken is not None or end is None:
            status = RequestStatus.CUT
        else:
            status = RequestStatus.OK
        error = self.failure or self.broken
        if status is RequestStatus.CUT and error is None:
            error = "the stream ended before the answer did"
        tokens = end.completion_tokens if end and end.completion_tokens is not None else received
        return RequestRecord(
            number=number,
            prompt_id=prompt_id,
            status=status,
            sent_at=sent_at,
            took_s=took_s,
            arrivals=tuple(self._arrivals),
            completion_tokens=tokens,
            prompt_tokens=end.prompt_tokens if end else None,
            counts=end.counts if end else None,
            error=error,
        )


def _with_nonce(prompt: Prompt, nonce: str, number: int) -> str:
    # The nonce leads, so that not even the first block of the prompt is in a prefix cache.
    return f"[{nonce}-{number}] {prompt.text}" if nonce else prompt.text
