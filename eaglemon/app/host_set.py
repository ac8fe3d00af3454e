"""The hosts of one console by name: connected, added to, let go of."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from eaglemon.app.host import Host, HostListener
from eaglemon.core.hosts import HostSpec
from eaglemon.core.problems import did_you_mean
from eaglemon.errors import UsageError
from eaglemon.io.clock import Clock
from eaglemon.io.transport import Transport


class HostSet(Mapping[str, Host]):
    """Hosts in the order in which they were named; each is kept connected from ``open`` on."""

    def __init__(
        self,
        specs: Sequence[HostSpec],
        *,
        connect: Callable[[HostSpec], Transport],
        listener: HostListener,
        clock: Clock,
    ) -> None:
        def make(spec: HostSpec) -> Host:
            return Host(spec, connect=connect, listener=listener, clock=clock)

        self._make = make
        self._hosts: dict[str, Host] = {spec.name: self._make(spec) for spec in specs}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def open(self) -> None:
        """Begin to connect; does not wait for any host."""
        for name, host in self._hosts.items():
            self._run(name, host)

    def add(self, spec: HostSpec) -> None:
        """Connect to one more host; raises ``UsageError`` where its name is taken."""
        if spec.name in self._hosts:
            raise UsageError(f"{spec.name} is a host of this console already")
        host = self._hosts[spec.name] = self._make(spec)
        self._run(spec.name, host)

    def retry(self, name: str) -> None:
        """Try a host that is down again now; raises ``UsageError`` for an unknown one."""
        if name not in self._hosts:
            raise UsageError(f"unknown host {name!r}", hint=did_you_mean(name, self._hosts))
        self._hosts[name].retry()

    async def close(self) -> None:
        """Let go of all hosts."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks = {}

    def _run(self, name: str, host: Host) -> None:
        self._tasks[name] = asyncio.create_task(host.run(), name=f"host {name}")
