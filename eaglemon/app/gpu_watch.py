"""Hosts and their GPUs alone: what a look at them needs, without keepers of servers and engines."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self

from eaglemon.app.broadcast import COALESCE_S, TICK_S, Broadcast
from eaglemon.app.host import Host
from eaglemon.app.host_set import HostSet
from eaglemon.core.hosts import HostSample, HostSpec
from eaglemon.core.runs import RunStatus
from eaglemon.core.views import Snapshot
from eaglemon.io.clock import Clock, SystemClock
from eaglemon.io.transport import Transport


class GpuWatch:
    """``async with GpuWatch(...)`` connects to the hosts; its snapshots have no servers."""

    def __init__(
        self,
        hosts: Sequence[HostSpec],
        *,
        connect: Callable[[HostSpec], Transport],
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._changes = Broadcast()
        self._news = asyncio.Event()
        self._shown: set[str] = set()
        """The hosts that have sent a sample."""
        self._hosts = HostSet(hosts, connect=connect, listener=self, clock=self._clock)

    async def __aenter__(self) -> Self:
        """Begin to connect; does not wait for any host."""
        self._hosts.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of the hosts."""
        await self._hosts.close()

    def snapshot(self) -> Snapshot:
        """Return everything known now."""
        views = tuple(host.view() for host in self._hosts.values())
        return Snapshot(at=self._clock.wall(), hosts=views, servers=())

    async def updates(self) -> AsyncIterator[Snapshot]:
        """Yield snapshots as things change, the latest only for a slow reader."""
        while True:
            version = self._changes.version
            yield self.snapshot()
            await self._changes.beyond(version, timeout_s=TICK_S)
            # What a host shows first is waited for, and is not kept back.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COALESCE_S):
                    await self._news.wait()
            self._news.clear()

    async def settle(self, *, timeout_s: float = 20.0) -> Snapshot:
        """Wait until each host has answered with its GPUs, or failed to."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for host in self._hosts.values():
                    await host.answered.wait()
                await self._changes.until(self._settled)
        return self.snapshot()

    def _settled(self) -> bool:
        return all(not host.is_up or host.sample is not None for host in self._hosts.values())

    # What the hosts tell (``HostListener``).

    def host_changed(self, host: Host) -> None:
        """A host's connection changed."""
        del host
        self._changes.notify()

    def sample_seen(self, host: Host, sample: HostSample) -> None:
        """GPUs were sampled."""
        del sample
        if host.spec.name not in self._shown:
            self._shown.add(host.spec.name)
            self._news.set()
        self._changes.notify()

    def runs_seen(
        self, host: Host, changed: Sequence[RunStatus], gone: Sequence[str], *, first: bool
    ) -> None:
        """Runs changed; the samples tell which run a process belongs to."""
        del host, changed, gone, first
        self._changes.notify()

    def link_lost(self, host: Host, reason: str) -> None:
        """A host cannot be reached any more."""
        del host, reason
        self._changes.notify()
