"""The servers on a console's hosts that no console started: listed, watched and ended."""

from collections.abc import Callable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import replace

from eaglemon.app.foreign import MEMORY_BACK_S, find_foreign, stop_foreign
from eaglemon.app.host import Host
from eaglemon.app.keeper import Keeper
from eaglemon.core.foreign import ForeignServer, ForeignStop, parse_foreign_id
from eaglemon.core.nvidia_smi import advise, is_no_driver
from eaglemon.core.problems import did_you_mean
from eaglemon.core.profiles import Profile
from eaglemon.core.release import gone_unseen
from eaglemon.core.units import memory
from eaglemon.errors import UsageError
from eaglemon.io.clock import Clock

_MEMORY_STEP_S = 0.3
_NO_SAMPLE = "no sample of the GPUs has come"


class ForeignServers:
    """The servers of a console's hosts that no console started."""

    def __init__(
        self, hosts: Mapping[str, Host], keepers: MutableMapping[str, Keeper], clock: Clock
    ) -> None:
        self._hosts = hosts
        self._keepers = keepers
        self._clock = clock

    async def on(self, host: Host) -> tuple[ForeignServer, ...]:
        """Return the foreign servers of a host; raises ``HostError``."""
        ours = [k.pids for k in self._keepers.values() if k.host is host and k.foreign is None]
        return await find_foreign(host, ours=frozenset[int]().union(*ours))

    async def named(self, text: str) -> ForeignServer:
        """Return the server that ``PID@HOST`` names, as it stands now."""
        parts = parse_foreign_id(text)
        if parts is None:
            raise UsageError(f"{text!r} names no foreign server", hint="write PID@HOST")
        pid, name = parts
        host = self.host(name)
        there = await self.on(host)
        found = next((server for server in there if server.pid == pid), None)
        if found is None:
            if any(pid in k.pids for k in self._keepers.values() if k.host is host):
                raise UsageError(f"PID {pid} is of a run of eaglemon", hint="eaglemon status")
            known = [server.id for server in there]
            raise UsageError(
                f"PID {pid} is no server on {name}",
                hint=did_you_mean(text, known) or "none was found there",
            )
        return found

    async def watch(self, text: str, keeper_of: Callable[[Host, Profile], Keeper]) -> str:
        """Watch a foreign server like one of ours; returns its id."""
        parts = parse_foreign_id(text)
        if parts is not None and parts[1] in self._hosts:
            await self._hosts[parts[1]].until_up()
        server = await self.named(text)
        keeper = self._keepers.get(server.id)
        if keeper is None or keeper.state.ended:
            host = self.host(server.host)
            keeper = keeper_of(host, server.profile)
            self._keepers[server.id] = keeper

            async def there() -> bool:
                key = (server.pid, server.start_ticks)
                return any((one.pid, one.start_ticks) == key for one in await self.on(host))

            keeper.watch(server, there)
        return server.id

    async def stop(
        self, text: str, *, grace_s: float, told: Callable[[ForeignStop], None]
    ) -> ForeignStop:
        """End a foreign server and wait a moment for its memory."""
        server = await self.named(text)
        host = self.host(server.host)
        last = ForeignStop(server=server, left=server.pids)
        began = self._clock.monotonic()
        async with aclosing(stop_foreign(host, server, grace_s=grace_s)) as steps:
            async for last in steps:
                told(last)
        if not last.gone:
            return last
        limit_s = grace_s + MEMORY_BACK_S
        while True:
            unseen = _NO_SAMPLE if host.sample is None else host.sample.unseen
            holders = () if host.sample is None else host.sample.processes
            if unseen is None and not any(one.pid in server.pids for one in holders):
                return _told(last, _back(server), told, memory_back=True)
            late = self._clock.monotonic() - began >= limit_s
            if unseen is not None and (late or is_no_driver(unseen)):
                return _told(last, gone_unseen(advise(unseen)), told, memory_unseen=advise(unseen))
            if late:
                return last
            await self._clock.sleep(_MEMORY_STEP_S)

    def host(self, name: str) -> Host:
        """Return a host by its name; raises ``UsageError``."""
        if name not in self._hosts:
            raise UsageError(f"unknown host {name!r}", hint=did_you_mean(name, self._hosts))
        return self._hosts[name]

    async def up(self, name: str) -> Host:
        """Return a host once it is connected; raises ``UsageError`` and ``HostError``."""
        host = self.host(name)
        await host.until_up()
        return host


def _back(server: ForeignServer) -> str:
    if server.memory_used_bytes:
        return f"{memory(server.memory_used_bytes)} of GPU memory back"
    return "its GPU memory is back" if server.gpu_indexes else "it holds no GPU memory"


def _told(
    stop: ForeignStop,
    words: str,
    told: Callable[[ForeignStop], None],
    *,
    memory_back: bool = False,
    memory_unseen: str = "",
) -> ForeignStop:
    last = replace(
        stop, steps=(*stop.steps, words), memory_back=memory_back, memory_unseen=memory_unseen
    )
    told(last)
    return last
