"""One host's connection: kept up, its samples and runs handed on, its state told in words.

Reconnects with growing, jittered pauses. Losing the link says nothing about the servers there.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Protocol

from eaglemon.core.gpu_history import GpuHistory
from eaglemon.core.hosts import HostFacts, HostSample, HostSpec, LinkState, beside_name
from eaglemon.core.nvidia_smi import advise
from eaglemon.core.runs import DamagedRun, RunStatus
from eaglemon.core.views import HostView
from eaglemon.errors import EaglemonError, HostError, LinkLostError
from eaglemon.io.clock import Clock
from eaglemon.io.connect import open_link
from eaglemon.io.host_link import HostLink, TellsDamagedRuns, TellsSilence
from eaglemon.io.ssh_answers import ANSWERS
from eaglemon.io.transport import TellingTransport, Transport

_log = logging.getLogger(__name__)

RETRY_FIRST_S = 1.0
RETRY_MOST_S = 30.0
FIRST_ANSWER_S = 60.0
"""An agent that has told no runs by then never will: its disk or the link hangs."""
SILENT_AFTER_S = 2.5
"""Without a sample for so long, an answer that did not come says nothing of who was asked."""
STALE_AFTER_S = 5.0
"""A sample older than this is marked old: several sampling intervals have passed."""

NOT_KNOWN, AS_LAST_SEEN = ": its servers are not known", ": its servers are as last seen"


class HostListener(Protocol):
    """What a host tells its owner; all calls come on the event loop and return at once."""

    def host_changed(self, host: "Host") -> None:
        """Something to show has changed."""
        ...

    def sample_seen(self, host: "Host", sample: HostSample) -> None:
        """A sample of the GPUs arrived."""
        ...

    def runs_seen(
        self, host: "Host", changed: Sequence[RunStatus], gone: Sequence[str], *, first: bool
    ) -> None:
        """Runs changed; ``first`` is the whole list after a (re)connect."""
        ...

    def link_lost(self, host: "Host", reason: str) -> None:
        """The link broke."""
        ...


class Host:
    """Supervises the connection to one host."""

    def __init__(
        self,
        spec: HostSpec,
        *,
        connect: Callable[[HostSpec], Transport],
        listener: HostListener,
        clock: Clock,
    ) -> None:
        self.spec = spec
        self.sample: HostSample | None = None
        self.clock_offset_s = 0.0
        """The host's clock minus this one's."""
        self._connect = connect
        self._listener = listener
        self._clock = clock
        self._state = LinkState.IDLE
        self._detail = self._hint = ""
        self._link: HostLink | None = None
        self._transport: Transport | None = None
        self._facts: HostFacts | None = None
        self._sampled_at: float | None = None
        self._retry_at: float | None = None
        self._history = GpuHistory()
        self._records_silent: str | None = None
        self._runs_told = False
        self._retry_now = asyncio.Event()
        self._pause_s = RETRY_FIRST_S
        self.answered = asyncio.Event()
        """Set once the first attempt has succeeded or failed, and runs are known."""

    @property
    def link(self) -> HostLink:
        """The agent's link; raises ``HostError`` while the host is not up."""
        if self._link is None:
            raise self._away()
        return self._link

    @property
    def transport(self) -> Transport:
        """The connection; raises ``HostError`` while the host is not up."""
        if self._transport is None or self._link is None:
            raise HostError(f"{self.spec.name} is {self._state.value}")
        return self._transport

    @property
    def user(self) -> str:
        """Who the agent runs as on the host; empty until it has answered once."""
        return self._facts.user if self._facts is not None else ""

    @property
    def is_up(self) -> bool:
        """Whether the agent answers."""
        return self._link is not None

    def is_still(self, link: HostLink) -> bool:
        """Tell whether this link is up: an answer that went with it says nothing of who gave it."""
        return self._link is link

    @property
    def is_silent(self) -> bool:
        """Whether the link is up and samples fail to come: what is asked now tells nothing."""
        if not self.is_up or self._sampled_at is None:
            return False
        limit_s = max(SILENT_AFTER_S, 3 * self.spec.sample_s)
        return self._clock.monotonic() - self._sampled_at > limit_s

    async def until_up(self) -> None:
        """Wait for the first answer; raises ``HostError`` where the host is not up then."""
        await self.answered.wait()
        if not self.is_up:
            raise self._away()

    def view(self) -> HostView:
        """Return what to show of this host now."""
        age_s = None if self._sampled_at is None else self._clock.monotonic() - self._sampled_at
        state = self._state
        stale_after_s = max(STALE_AFTER_S, 3 * self.spec.sample_s)
        if state is LinkState.UP and age_s is not None and age_s > stale_after_s:
            state = LinkState.STALE
        detail = self._detail
        if state is LinkState.STALE and age_s is not None:
            detail = f"no sample for {age_s:.0f} s"
        elif state is LinkState.UP and (missing := self._missing()):
            state, detail = LinkState.DEGRADED, missing
        next_try_s = None
        if state is LinkState.DOWN and self._retry_at is not None:
            next_try_s = max(self._retry_at - self._clock.monotonic(), 0.0)
        return HostView(
            spec=self.spec,
            state=state,
            detail=detail,
            hint=self._hint if detail is self._detail else "",
            facts=self._facts,
            sample=self.sample,
            sample_age_s=age_s,
            next_try_s=next_try_s,
            history=self._history.traces(),
            damaged=self._damaged(),
            untold=self._untold(),
        )

    def _away(self) -> HostError:
        said = self._detail.removesuffix(f"; {self._hint}" if self._hint else "")
        why = f": {said}" if said else ""
        return HostError(f"{self.spec.name} is {self._state.value}{why}", hint=self._hint)

    def _untold(self) -> str:
        if not self.is_up or self._runs_told:
            return ""
        return (self._records_silent or "it has not answered yet").removesuffix(NOT_KNOWN)

    def _damaged(self) -> tuple[DamagedRun, ...]:
        link: object = self._link
        return tuple(link.damaged_runs.values()) if isinstance(link, TellsDamagedRuns) else ()

    def retry(self) -> None:
        """Try again now instead of waiting for the next attempt; what was declined is asked."""
        ANSWERS.ask_again(self.spec.name)
        self._retry_now.set()

    def take(self, sample: HostSample) -> None:
        """Take the newest sample, whoever asked the host for it; its time becomes this clock's."""
        sample = replace(sample, at=sample.at - self.clock_offset_s)
        self.sample = sample
        self._history.add(sample)
        self._sampled_at = self._clock.monotonic()
        self._listener.sample_seen(self, sample)

    async def run(self) -> None:
        """Connect, and reconnect for ever; ends only when cancelled."""
        while True:
            self._set(LinkState.CONNECTING, self._detail, self._hint)
            hint = ""
            try:
                reason = await self._connected()
            except EaglemonError as error:
                reason, hint = str(error), error.hint
            except Exception as error:  # noqa: BLE001 -- told, logged, tried again
                # A mistake of ours: told as one, and this host is tried again like any other.
                _log.exception("%s: its connection ended unexpectedly", self.spec.name)
                reason = _internal(error)
            # Jitter keeps many consoles from coming back to a rebooted host in step.
            wait_s = self._pause_s * random.uniform(0.8, 1.2)  # noqa: S311 -- no secret
            self._pause_s = min(self._pause_s * 2, RETRY_MOST_S)
            self._retry_at = self._clock.monotonic() + wait_s
            # Whoever shows it names the host.
            self._set(LinkState.DOWN, beside_name(self.spec.name, reason), hint)
            self.answered.set()
            self._retry_now.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._retry_now.wait()

    async def _connected(self) -> str:
        """Connect once, stay until the link ends, and return why it did."""
        transport = self._connect(self.spec)
        if isinstance(transport, TellingTransport):
            transport.tells(self._waits_for)
        try:
            await transport.connect()
            link = await open_link(transport, self.spec)
            try:
                return await self._stay(transport, link)
            finally:
                await link.close()
        finally:
            await transport.close()

    def _waits_for(self, what: str) -> None:
        """Show what a connection waits for, of a person."""
        if what and self._state is LinkState.CONNECTING:
            self._set(LinkState.CONNECTING, what)

    def _missing(self) -> str:
        """Say what a host that is up lacks: python3, its driver."""
        limits = list(self.link.facts.limits) if self._link is not None else []
        if self._records_silent is not None:
            limits.insert(0, self._records_silent)
        error = self.sample.driver_error if self.sample is not None else None
        if error and not any(error in limit for limit in limits):
            limits.append(advise(error))
        return "; ".join(limits)

    async def _stay(self, transport: Transport, link: HostLink) -> str:
        # One that does not even tell the time is not up.
        self.clock_offset_s = await link.ping() - self._clock.wall()
        self._pause_s = RETRY_FIRST_S
        self._facts = link.facts
        self._records_silent = None
        self._runs_told = False
        self._transport, self._link = transport, link
        self._set(LinkState.UP, "")
        tasks = [
            asyncio.create_task(self._watch_gpus(link), name=f"{self.spec.name}: gpus"),
            asyncio.create_task(self._watch_runs(link), name=f"{self.spec.name}: runs"),
            asyncio.create_task(link.closed(), name=f"{self.spec.name}: link"),
        ]
        reason = "the connection is being closed"
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            reason = _reason_of(done)
        finally:
            # All at once: to close what is left of it takes a while, and it is not up meanwhile.
            self._link = self._transport = self._retry_at = None
            self._state, self._detail = LinkState.DOWN, beside_name(self.spec.name, reason)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.link_lost(self, reason)
        return reason

    async def _watch_gpus(self, link: HostLink) -> None:
        interval_s = self.spec.sample_s
        watch = link.watch_gpus(
            interval_s=interval_s, processes_interval_s=max(2 * interval_s, 2.0)
        )
        async with aclosing(watch) as samples:
            async for sample in samples:
                self.take(sample)
        raise LinkLostError(f"{self.spec.name}: the stream of GPU samples ended")

    async def _watch_runs(self, link: HostLink) -> None:
        first = True
        try:
            async with (
                asyncio.timeout(FIRST_ANSWER_S) as limit,
                aclosing(link.watch_runs()) as runs,
            ):
                async for changed, gone in runs:
                    limit.reschedule(None)
                    self.answered.set()
                    self._records_silent = _silence_of(link)
                    if self._records_silent is not None:
                        self._records_silent += NOT_KNOWN if first else AS_LAST_SEEN
                        self._listener.host_changed(self)
                        continue
                    self._runs_told = True
                    self._listener.runs_seen(self, changed, gone, first=first)
                    first = False
        except TimeoutError as error:
            raise LinkLostError(
                f"{self.spec.name}: its runs were not told within {FIRST_ANSWER_S:.0f} s",
                hint="see whether the file system of its state folder hangs",
            ) from error
        raise LinkLostError(f"{self.spec.name}: the stream of runs ended")

    def _set(self, state: LinkState, detail: str, hint: str = "") -> None:
        self._state, self._detail, self._hint = state, detail, hint
        self._listener.host_changed(self)


def _silence_of(link: object) -> str | None:
    return link.records_silent if isinstance(link, TellsSilence) else None


def _internal(error: BaseException) -> str:
    return f"internal error: {type(error).__name__}: {error}"


def _reason_of(done: set[asyncio.Task[str | None]]) -> str:
    for task in done:
        error = task.exception()
        if isinstance(error, EaglemonError):
            return str(error)
        if error is not None:
            _log.error("%s ended unexpectedly", task.get_name(), exc_info=error)
            return _internal(error)
        result = task.result()
        if result:
            return result
    return "the link ended"
