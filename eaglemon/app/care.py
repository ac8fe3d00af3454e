"""Restarts, servers that nobody of us started, and servers that are only an address."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

from eaglemon.app.foreign import MEMORY_BACK_S, find_foreign, stop_foreign
from eaglemon.app.health import ask_health, ask_token
from eaglemon.app.host import Host
from eaglemon.app.keeper import Keeper
from eaglemon.app.preflight import gpu_problems
from eaglemon.app.probe_target import ProbeTarget, recognise
from eaglemon.core.crashes import LOOP_EXITS, LOOP_WINDOW_S, is_crash_loop
from eaglemon.core.foreign import ForeignServer, ForeignStop, Reached, parse_foreign_id
from eaglemon.core.nvidia_smi import advise, is_no_driver
from eaglemon.core.problems import did_you_mean, errors_among
from eaglemon.core.profiles import Limits, Profile
from eaglemon.core.release import gone_unseen
from eaglemon.core.server_url import Trust
from eaglemon.core.units import duration, memory
from eaglemon.core.views import HealthVerdict, LaunchPlan, ServerState, ServerView, Snapshot
from eaglemon.errors import (
    EaglemonError,
    HostError,
    ServerError,
    TimeLimitError,
    UsageError,
)
from eaglemon.io.clock import Clock

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0
_BACK_OFF = 1.3
_MEMORY_STEP_S = 0.3
_NO_SAMPLE = "no sample of the GPUs has come"


class Console(Protocol):
    """What a restart needs of the domain API (``eaglemon.app.hub.Hub``)."""

    def snapshot(self) -> Snapshot:
        """Return everything known now."""
        ...

    def find(self, text: str) -> ServerView:
        """Return the server that a person means."""
        ...

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> LaunchPlan:
        """Return what starting this server again would run."""
        ...

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        """Stop a server and wait until its GPU memory is back."""
        ...

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        """Start a server and return its id."""
        ...


def refuse_stop(keeper: Keeper) -> None:
    """Raise ``ServerError`` where a server cannot be stopped from here."""
    if keeper.foreign is not None:
        raise ServerError(
            f"{keeper.id} was started by {keeper.foreign.user}, not from here",
            hint=f"eaglemon kill {keeper.id} --foreign",
        )
    if keeper.state.ended and not keeper.pids:
        raise ServerError(f"{keeper.id} is not running: {keeper.state.value}")


async def restart(console: Console, server_id: str, *, grace_s: float | None) -> str:
    """Stop a server, wait for its memory, and start the same again on the same port.

    Returns the new id. Raises ``ServerError`` where anything of the old one may be left: a second
    server is never started on top of the first.
    """
    view = console.find(server_id)
    plan = console.relaunch_plan(view.id)
    if not view.state.ended or view.pids:
        view = await console.stop(view.id, grace_s=grace_s)
        if view.state is not ServerState.STOPPED or view.stop is None or not view.stop.proven:
            raise ServerError(
                f"{view.id} is not shown to be gone: {view.detail or view.state.value}",
                hint="nothing was started; look at what holds the memory, then launch again",
            )
    await _memory_back(console, plan, ended_at=view.launched_at + view.age_s)
    return await console.launch(plan)


async def _memory_back(console: Console, plan: LaunchPlan, *, ended_at: float) -> None:
    """Wait until the GPUs of a launch are free, for at most the profile's limit.

    A server that failed by itself leaves its memory to the driver for a moment, and a sample from
    before ``ended_at`` (unix seconds) proves nothing. What is still in use at the end is for the
    preflight to tell.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(plan.profile.limits.release_s):
            while True:
                snapshot = console.snapshot()
                host = snapshot.host(plan.host)
                age_s = host.sample_age_s if host is not None else None
                fresh = age_s is not None and snapshot.at - age_s > ended_at
                if host is None or (fresh and not errors_among(gpu_problems(plan, host.sample))):
                    return
                await asyncio.sleep(_MEMORY_STEP_S)


async def keep_running(
    console: Console,
    server_id: str,
    *,
    ended: Callable[[str], Awaitable[ServerView]],
    told: Callable[[str], None],
) -> ServerView:
    """Start a server again whenever it fails by itself, until it is stopped by someone.

    ``ended`` waits until a server has ended. Raises ``ServerError`` on a crash loop. What counts
    is what the host remembers, so a console that was killed meanwhile forgets no crash.
    """
    while True:
        view = await ended(server_id)
        if view.state is ServerState.STOPPED:
            return view
        snapshot = console.snapshot()
        ends = [
            one.launched_at + one.age_s
            for one in snapshot.servers
            if (one.host, one.profile) == (view.host, view.profile)
            and one.state is ServerState.FAILED
            and one.pid is not None
        ]
        why = view.cause.sentence if view.cause else view.detail
        if is_crash_loop(ends, snapshot.at):
            raise ServerError(
                f"{view.profile} has ended {LOOP_EXITS} times within "
                f"{duration(LOOP_WINDOW_S)} on {view.host}, the last time by: {why}",
                hint="it is not started again; see eaglemon logs " + view.id,
            )
        told(f"{view.id} failed ({why}), starting it again")
        server_id = await restart(console, view.id, grace_s=None)


class Foreign:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a server at a URL asks for, and what is asked of it."""

    api_key: str | None = field(default=None, repr=False)
    trust: Trust | None = None


async def wait_at(url: str, host: Host, clock: Clock, access: Access, *, limit_s: float) -> Reached:
    """Wait until the server at ``url``, as ``host`` sees it, has generated a token.

    Raises ``TimeLimitError`` after ``limit_s`` and ``UsageError`` for what is no URL.
    """
    began = clock.monotonic()
    asked, pause_s, last = 0, _FIRST_PAUSE_S, "no answer"
    try:
        async with asyncio.timeout(limit_s):
            while True:
                asked += 1
                try:
                    target = await recognise(url, host, api_key=access.api_key, trust=access.trust)
                    return await _reached(target, clock, began, asked)
                except (HostError, ServerError) as error:
                    last = error.message
                except UsageError:
                    raise
                except EaglemonError as error:
                    last = error.message  # It answers, and not yet as an engine does.
                await clock.sleep(pause_s)
                pause_s = min(pause_s * _BACK_OFF, _LONGEST_PAUSE_S)
    except TimeoutError as error:
        raise TimeLimitError(
            f"{url} is not ready after {limit_s:.0f} s: {last}", hint="wait longer with --timeout"
        ) from error


async def _reached(target: ProbeTarget, clock: Clock, began: float, asked: int) -> Reached:
    http, limits = target.new_http(), Limits()
    try:
        verdict, code, detail = await ask_health(
            http, target.engine, limits, limit_s=limits.health_total_s
        )
        if verdict is not HealthVerdict.OK:
            raise ServerError(f"health {code or verdict.value} {detail}".rstrip())
        await ask_token(http, target.engine, target.model, limit_s=limits.first_token_s)
    finally:
        await http.close()
    return Reached(
        url=target.id,
        host=target.host.spec.name,
        engine=target.engine.name,
        model=target.model,
        waited_s=clock.monotonic() - began,
        asked=asked,
    )
