"""Runs a probe: a bounded load on one server, measured request by request, live while it runs."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing

from eaglemon.app.probe_loads import ConsoleLoad, HostLoad, Load, fits_host
from eaglemon.app.probe_target import ProbeTarget
from eaglemon.app.server_metrics import read_gauges
from eaglemon.core.log_figures import LinesAcceptance, acceptance_of
from eaglemon.core.probe import (
    GeneratorHealth,
    LiveCounts,
    PlannedRequest,
    ProbeFigures,
    ProbePlan,
    ProbeProgress,
    RequestRecord,
    figures_of,
    planned_requests,
    tokens_of,
    without_prompts,
)
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.units import percent, plural
from eaglemon.engines.base import Gauges
from eaglemon.errors import AgentError, EaglemonError, HostError, LinkLostError, ProbeError
from eaglemon.io.clock import Clock
from eaglemon.io.http import HttpLimits
from eaglemon.io.workloads import RANDOM

COUNTERS_SETTLE_S = 5.0
"""Counters of the last requests may come this late."""
LIVE_WINDOW_S = 5.0
SHOW_S = 0.2
FOREIGN_SHARE, FOREIGN_TOKENS = 0.02, 8
"""What the server generated beyond this was asked for by others; its health costs tokens too."""
_POLL_S = 0.25
_PINGS = 3
_FLUSH_LIMITS = HttpLimits(connect_s=5.0, read_s=20.0)
_TOO_LARGE = "the load comes from this machine: its prompts are too large to be sent to the host"
_CANNOT_RUN = frozenset({"unknown-op", "spawn-failed", "no-python"})


class Probe:
    """One probe of one server; ``run`` once. ``show`` gets its progress."""

    def __init__(
        self,
        target: ProbeTarget,
        plan: ProbePlan,
        *,
        clock: Clock,
        show: Callable[[ProbeProgress], None],
    ) -> None:
        self._target = target
        self._plan = plan
        self._shown_plan = without_prompts(plan)
        self._clock = clock
        self._tell = show
        on_host = plan.from_host and fits_host(plan)
        self._load: Load = HostLoad(target, plan) if on_host else ConsoleLoad(target, plan, clock)
        self._http = target.new_http()
        self._records: list[RequestRecord] = []
        self._started = clock.monotonic()
        self._live: deque[LiveCounts] = deque(maxlen=64)
        self._generator: GeneratorHealth | None = None
        self._foreign: int | None = None
        self._counters_read = False
        self._link_s: float | None = None
        """Round trip of the connection, where first tokens travel over it."""
        self._notes = [_TOO_LARGE] if plan.from_host and not on_host else []
        self._show_next = 0.0

    async def run(self) -> ProbeProgress:
        """Run to the end; raises ``ProbeError`` when nothing could be measured.

        When cancelled, what was measured so far is shown as ``cancelled``.
        """
        plan = self._plan
        if plan.requests < 1 or plan.concurrency < 1 or not plan.prompts:
            raise ProbeError("a probe needs at least one request, one user and one prompt")
        try:
            async with asyncio.timeout(plan.total_limit_s):
                figures = await self._measure()
        except TimeoutError as error:
            self._show("failed", error=f"not done within {plan.total_limit_s:.0f} s")
            raise ProbeError(
                f"the probe was not done within {plan.total_limit_s:.0f} s",
                hint="ask for fewer requests or tokens",
            ) from error
        except EaglemonError as error:
            self._show("failed", error=error.message)
            raise ProbeError(f"the probe broke off: {error}") from error
        except asyncio.CancelledError:
            self._show("cancelled")
            raise
        finally:
            await self._http.close()
        if figures.ok == 0:
            # The first to be sent tells why; those after a server's death only that it is gone.
            first = min(self._records, key=lambda record: record.sent_at, default=None)
            reason = "none was sent" if first is None else first.error or "no tokens"
            self._show("failed", error=reason)
            raise ProbeError(
                f"none of {plural(len(self._records), 'request')} ended well: {reason}",
                hint="look at the server's log",
            )
        return self._show("done", figures=figures)

    async def _measure(self) -> ProbeFigures:
        plan = self._plan
        if plan.flush:
            await self._flush()
        await self._send(0, plan.warmup, state="warming-up")
        self._records.clear()
        self._generator = None
        if isinstance(self._load, ConsoleLoad):
            self._link_s = await self._round_trip_s()
        before = await self._gauges()
        self._started = self._clock.monotonic()
        await self._send(plan.warmup, plan.requests, state="running")
        counted = await self._counted_since(before)
        told = counted is not None or any(record.counts is not None for record in self._records)
        lines = None if told else await self._lines_since(self._started)
        figures = figures_of(
            self._records, users=plan.concurrency, counter_difference=counted, log_lines=lines
        )
        self._notes += self._trust(figures)
        return figures

    async def _send(self, first: int, count: int, *, state: str) -> None:
        self._live.clear()
        self._show(state)
        requests = planned_requests(self._plan, first=first, count=count)
        if not requests:
            return
        try:
            await self._follow(requests, state)
        except (AgentError, HostError) as error:
            cannot = isinstance(error, AgentError) and error.kind in _CANNOT_RUN
            # A host without an agent still has its connection; one that is lost has neither.
            without = isinstance(error, HostError) and not isinstance(error, LinkLostError)
            if self._records or not (cannot or without) or isinstance(self._load, ConsoleLoad):
                raise
            self._notes.append(f"the load comes from this machine: {error.message}")
            self._load = ConsoleLoad(self._target, self._plan, self._clock)
            await self._follow(requests, state)

    async def _follow(self, requests: Sequence[PlannedRequest], state: str) -> None:
        async with aclosing(self._load.run(requests)) as events:
            async for event in events:
                match event:
                    case RequestRecord():
                        self._records.append(event)
                    case LiveCounts():
                        self._live.append(event)
                    case GeneratorHealth():
                        self._generator = event
                self._show_sometimes(state)
        self._show(state)

    async def _flush(self) -> None:
        call = self._target.engine.measuring.flush
        try:
            answer = await self._http.request(
                call.method, call.path, body=call.body, limits=_FLUSH_LIMITS
            )
        except HostError as error:
            reason = error.message
        else:
            if answer.status == 200:
                return
            reason = f"HTTP {answer.status}"
        kept = "; the nonce keeps it out of the figures" if self._plan.nonce else ""
        self._notes.append(f"the prefix cache was not emptied: {call.path} {reason}{kept}")

    async def _round_trip_s(self) -> float | None:
        """Return the shortest of a few round trips to the host's agent, ``None`` without one."""
        trips = []
        try:
            for _ in range(_PINGS):
                asked = self._clock.monotonic()
                await self._target.host.link.ping()
                trips.append(self._clock.monotonic() - asked)
        except HostError:
            return None
        return min(trips)

    async def _gauges(self) -> Gauges | None:
        """Return a reading of the counters, ``None`` when the server does not serve any."""
        try:
            return await read_gauges(self._http, self._target.engine)
        except HostError:
            return None

    async def _counted_since(self, before: Gauges | None) -> AcceptCounts | None:
        """Return what the server counted for this probe, waiting until all of it is there."""
        if before is None:
            self._note_no_metrics()
            return None
        if before.running:
            self._notes.append(
                f"{plural(before.running, 'request')} of others ran when the probe began"
            )
        received = [record.received_tokens for record in self._records]
        expected = sum(tokens or 0 for tokens in received)
        # Engines name a counter from its first count on: until then it stands at 0.
        earlier = before.generation_tokens or 0.0
        deadline = self._clock.monotonic() + COUNTERS_SETTLE_S
        while (after := await self._gauges()) is not None:
            grown = (after.generation_tokens or 0.0) - earlier
            if grown < 0 or after.started_at != before.started_at:
                self._notes.append(
                    "the server was restarted during the probe, so that neither its counters nor "
                    "other people's traffic can be told"
                )
                return None
            if grown < expected and self._clock.monotonic() < deadline:
                await self._clock.sleep(_POLL_S)
                continue
            if after.generation_tokens is None:
                break
            self._counters_read = True
            if None not in received:
                self._foreign = max(0, int(grown) - expected)
            if after.accept is None:
                return None
            first = before.accept or AcceptCounts(steps=0, accepted=int(earlier))
            return after.accept.since(first)
        if after is None and before.generation_tokens is not None:
            self._notes.append(
                "the server's metrics went away during the probe, so that other people's traffic "
                "would not be noticed"
            )
        else:
            self._note_no_metrics()
        return None

    def _note_no_metrics(self) -> None:
        self._notes.append(
            "the server serves no metrics, so other people's traffic would not be noticed: "
            + self._target.engine.metrics_hint
        )

    async def _lines_since(self, at: float) -> LinesAcceptance | None:
        """Return what the server's log says of the acceptance, its last line awaited."""
        if self._target.lines_since is None:
            return None
        await self._clock.sleep(self._target.engine.measuring.log_settle_s)
        found = acceptance_of(self._target.lines_since(at))
        if found is not None:
            self._notes.append(
                f"the accept length is that of {plural(found.lines, 'log line')}: neither the "
                "answers nor counters tell it, and the first and the last line reach beyond "
                "the probe"
            )
        return found

    def _trust(self, figures: ProbeFigures) -> list[str]:
        """Return what limits the trust in the figures."""
        notes = []
        if self._target.trust is not None and not self._target.trust.verify:
            notes.append("the server's certificate was not checked: it may be another server's")
        received = sum(record.received_tokens or 0 for record in self._records)
        untold = [r for r in self._records if tokens_of(r.arrivals) is None]
        if untold:
            notes.append(_untold_note(untold))
        foreign = self._foreign or 0
        if foreign > received * FOREIGN_SHARE + FOREIGN_TOKENS:
            notes.append(
                f"the server generated {foreign} tokens for others during the probe, which "
                f"received {received}: other traffic disturbs the figures"
            )
        if isinstance(self._load, ConsoleLoad):
            trip_ms = (self._link_s or 0.0) * 1000
            trip = f" (round trip about {trip_ms:.0f} ms)" if trip_ms >= 0.5 else ""
            notes.append(
                f"measured from this machine: first tokens include the connection{trip} and this "
                "program's own work, and are no figure of the server; send the load from the host "
                "for one"
            )
        generator = self._generator
        if generator is not None and generator.lagging:
            wrong = "first tokens may be told too late"
            if isinstance(self._load, ConsoleLoad):
                wrong = "tok/s may be too low and first tokens told too late"
            elif generator.in_time:
                wrong = "users paused between their requests (arrivals have the kernel's stamps)"
            notes.append(
                f"the load generator was late: up to {generator.lag_p95_s * 1000:.1f} ms in 95 % "
                f"of its ticks, {percent(generator.cpu_share)} of a core: {wrong}"
            )
        if self._plan.requests < self._plan.concurrency:
            notes.append(
                f"{plural(self._plan.requests, 'request')} for {self._plan.concurrency} users: no "
                f"more than {self._plan.requests} ran at a time"
            )
        if self._plan.workload == RANDOM:
            notes.append("random prompts: the accept length says nothing about real text")
        if self._plan.ignore_eos:
            notes.append(
                "answers were forced to their full length: text after its end repeats itself, "
                "which flatters the accept length"
            )
        share = figures.steady_share
        if share is not None and share < 1:
            notes.append(
                f"steady tok/s are over {share:.0%} of the time in which all users were busy: "
                "requests that did not end well ran in the rest"
            )
        wanted = self._plan.duration_s
        if wanted is not None and len(self._records) == self._plan.requests:
            notes.append(f"all {len(self._records)} requests were sent before {wanted:g} s were up")
        return notes

    def _show_sometimes(self, state: str) -> None:
        """Show what may be shown at a tenth of the time: figures of many requests cost some."""
        now = self._clock.monotonic()
        if now >= self._show_next:
            self._show(state)
            took = self._clock.monotonic() - now
            self._show_next = now + max(SHOW_S, 10 * took)

    def _show(
        self, state: str, *, figures: ProbeFigures | None = None, error: str | None = None
    ) -> ProbeProgress:
        ended = state in {"done", "cancelled", "failed"}
        elapsed = self._clock.monotonic() - self._started
        progress = ProbeProgress(
            server_id=self._target.id,
            plan=self._shown_plan,
            state=state,
            done=len(self._records),
            elapsed_s=elapsed,
            remaining_s=self._remaining_s(elapsed) if state == "running" else None,
            figures=figures or figures_of(self._records),
            records=tuple(self._records) if ended else (),
            engine=self._target.engine.name,
            driver=self._load.driver,
            live=None if ended or not self._live else self._live[-1],
            live_tok_s=None if ended else self._live_tok_s(),
            generator=self._generator,
            claims_first_tokens=not isinstance(self._load, ConsoleLoad)
            and (self._generator is None or self._generator.in_time),
            claims_speed=not self._late or not isinstance(self._load, ConsoleLoad),
            foreign_tokens=self._foreign,
            counters_read=self._counters_read,
            error=error,
            notes=tuple(self._notes),
        )
        self._tell(progress)
        return progress

    @property
    def _late(self) -> bool:
        return self._generator is not None and self._generator.lagging

    def _remaining_s(self, elapsed: float) -> float | None:
        done = len(self._records)
        guesses = []
        if done:
            guesses.append(elapsed / done * (self._plan.requests - done))
        if self._plan.duration_s is not None:
            guesses.append(max(0.0, self._plan.duration_s - elapsed))
        return min(guesses, default=None)

    def _live_tok_s(self) -> float | None:
        if len(self._live) < 2:
            return None
        last = self._live[-1]
        recent = itertools.dropwhile(lambda one: one.at_s < last.at_s - LIVE_WINDOW_S, self._live)
        first = next(recent, last)
        return (
            (last.tokens - first.tokens) / (last.at_s - first.at_s) if last is not first else None
        )


def _untold_note(records: Sequence[RequestRecord]) -> str:
    """Return what is not known of answers whose chunks do not tell their tokens."""
    chunks = f"the chunks of {plural(len(records), 'answer')} do not tell how many tokens they have"
    if all(record.completion_tokens is not None for record in records):
        return f"{chunks}, only their end does: tok/s of a request are not known"
    return f"{chunks}, nor does their end: neither tok/s nor other people's traffic are known"
