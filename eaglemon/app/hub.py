"""The composition root: hosts, keepers and probes of one console behind the domain API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from eaglemon.app.broadcast import COALESCE_S, TICK_S, Broadcast
from eaglemon.app.environment import environment_of
from eaglemon.app.foreign_servers import ForeignServers
from eaglemon.app.history import MemoryHistory, StartHistory
from eaglemon.app.host import Host
from eaglemon.app.host_set import HostSet
from eaglemon.app.keeper import Keeper
from eaglemon.app.late_runs import never_began
from eaglemon.app.logs import follow_log
from eaglemon.app.named_servers import find_server
from eaglemon.app.past_log import PastLog
from eaglemon.app.plans import Profiles, launch_plan, relaunch_plan
from eaglemon.app.preflight import check_launch
from eaglemon.app.probe_runs import ProbeRuns
from eaglemon.app.restarting import restart
from eaglemon.app.runs import newest, profile_of
from eaglemon.app.server_view import server_view
from eaglemon.app.stopping import stop_kept
from eaglemon.app.tasks import TaskBag
from eaglemon.app.waiting_at import Access, wait_at
from eaglemon.core.experiment_records import Environment
from eaglemon.core.foreign import ForeignServer, ForeignStop, Reached
from eaglemon.core.hosts import HostSample, HostSpec
from eaglemon.core.probe import ProbePlan, ProbeProgress, Prompt
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.runs import RunStatus
from eaglemon.core.server_url import Trust
from eaglemon.core.views import LaunchPlan, LogBatch, Needs, ServerState, ServerView, Snapshot, Told
from eaglemon.engines import engine_named
from eaglemon.errors import ConfigError, ServerError, TimeLimitError
from eaglemon.io.clock import Clock, SystemClock
from eaglemon.io.transport import Transport

LAST_LINES_S = 2.0
UNDER_WAY = frozenset({ServerState.PREFLIGHT, ServerState.SPAWNING})
"""States of a launch to which the host has not answered."""


class Hub:
    """One console. ``async with Hub(...)`` connects to all hosts and lets go of them."""

    def __init__(
        self,
        hosts: Sequence[HostSpec],
        profiles: Profiles,
        *,
        connect: Callable[[HostSpec], Transport],
        workload: Callable[[str], tuple[Prompt, ...]],
        clock: Clock | None = None,
        history: StartHistory | None = None,
    ) -> None:
        self._history = history or MemoryHistory()
        self._clock = clock or SystemClock()
        self._profiles = profiles
        self._changes = Broadcast()
        self._probes = ProbeRuns(workload=workload, clock=self._clock, changed=self._changes.notify)
        self._keepers: dict[str, Keeper] = {}
        self._hosts = HostSet(hosts, connect=connect, listener=self, clock=self._clock)
        self._foreign = ForeignServers(self._hosts, self._keepers, self._clock)
        self._leaving = TaskBag("let go")

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
        """Let go of everything; servers keep running."""
        await self.close()

    async def close(self) -> None:
        """Close all connections; servers keep running."""
        keepers = [keeper.close() for keeper in self._keepers.values()]
        await asyncio.gather(self._hosts.close(), *keepers)
        await self._leaving.finish_all()

    # What there is.

    def hosts(self) -> Sequence[HostSpec]:
        """Return the hosts of this console."""
        return tuple(host.spec for host in self._hosts.values())

    def add_host(self, spec: HostSpec) -> None:
        """Connect to one more host."""
        self._hosts.add(spec)
        self._changes.notify()

    def retry(self, host: str) -> None:
        """Try a host that is down again now."""
        self._hosts.retry(host)

    def profiles(self) -> Sequence[Profile]:
        """Return all profiles that could be read."""
        return tuple(self._profiles.all())

    def profile_problems(self) -> Sequence[Problem]:
        """Return what is wrong with profile files that could not be read."""
        return tuple(self._profiles.problems)

    def snapshot(self) -> Snapshot:
        """Return everything known now."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        servers = [server_view(k, now=now, wall=wall) for k in self._keepers.values()]
        servers.sort(key=lambda server: (server.launched_at, server.id), reverse=True)
        return Snapshot(
            at=wall,
            hosts=tuple(host.view() for host in self._hosts.values()),
            servers=tuple(servers),
        )

    async def updates(self) -> AsyncIterator[Snapshot]:
        """Yield snapshots as things change, the latest only for a slow reader."""
        while True:
            version = self._changes.version
            yield self.snapshot()
            await self._changes.beyond(version, timeout_s=TICK_S)
            await self._clock.sleep(COALESCE_S)

    async def settle(self, *, timeout_s: float = 20.0, needs: Needs = "servers") -> Snapshot:
        """Wait until each host answered once or failed to, and what ``needs`` names is known."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for host in self._hosts.values():
                    await host.answered.wait()
                await self._changes.until(partial(self._settled, needs))
        return self.snapshot()

    def find(self, text: str) -> ServerView:
        """Return the server with this id, id prefix, or name (living ones first, then newest)."""
        snapshot = self.snapshot()
        return find_server(text, snapshot.servers, snapshot.hosts)

    # Launch.

    def plan(
        self, profile: str, host: str, overrides: Mapping[str, str] | None = None
    ) -> LaunchPlan:
        """Return what a launch would run."""
        chosen = self._foreign.host(host)
        return launch_plan(self._profiles.get(profile, overrides), chosen.spec.name)

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> LaunchPlan:
        """Return what starting this server again would run."""
        keeper = self._keeper(server_id)
        return relaunch_plan(keeper.profile, keeper.host.spec.name, forced_length=forced_length)

    async def check(self, plan: LaunchPlan) -> list[Problem]:
        """Return what stands against the launch."""
        engine = engine_named(plan.profile.engine)
        host = self._hosts[plan.host]
        if not host.is_up:
            await host.until_up()
        others = [s for s in self.snapshot().servers if s.state is not ServerState.PREFLIGHT]
        return await check_launch(plan, engine, host, others)

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        """Start a server and return its id, once the host runs its first process."""
        host = self._hosts[plan.host]
        await host.until_up()
        keeper = self._new_keeper(host, plan.profile)
        keeper.launch(plan, force=force, known=[k.id for k in self._keepers.values() if k.record])
        self._keepers[keeper.id] = keeper
        await self._changes.until(lambda: keeper.machine.state not in UNDER_WAY)
        if keeper.machine.state is ServerState.FAILED and keeper.record is None:
            # It never ran: whoever asked is told why, and the fleet shows servers.
            self._keepers.pop(keeper.id, None)
            await keeper.close()
            raise keeper.refused or ServerError(
                f"{plan.profile.name} was not started on {plan.host}: {keeper.machine.detail}"
            )
        return keeper.id

    async def wait(self, server_id: str, *, timeout_s: float | None = None) -> ServerView:
        """Wait until the server is ready or has ended."""
        keeper = self._keeper(server_id)
        limit_s = timeout_s if timeout_s is not None else keeper.profile.limits.ready_s

        def settled(view: ServerView) -> bool:
            return view.state.answering or view.state.ended

        try:
            async with asyncio.timeout(limit_s):
                view = await self._until(keeper, settled)
        except TimeoutError as error:
            view = self._view(keeper)
            raise TimeLimitError(
                f"{server_id} is not ready after {limit_s:.0f} s: {view.state.value}, "
                f"{view.detail}",
                hint="wait longer, or look at its log",
            ) from error
        if view.state is ServerState.FAILED:
            # The exit is told at once; its cause stands in the last lines of the log.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_LINES_S):
                    view = await self._until(keeper, lambda _: keeper.log.ended)
        return view

    # Stop.

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        """Stop a server and wait until its GPU memory is back."""
        return await stop_kept(self._keeper(server_id), self._until, grace_s=grace_s, wait=wait)

    async def restart(
        self, server_id: str, *, grace_s: float | None = None, told: Told = None
    ) -> str:
        """Stop a server, wait for its memory, start the same again and return its id."""
        return await restart(self, server_id, grace_s=grace_s, told=told)

    # Servers that no console started.

    async def foreign(self, host: str) -> tuple[ForeignServer, ...]:
        """Return the servers on a host that no console started."""
        one = await self._foreign.up(host)
        return await self._foreign.on(one)

    async def watch(self, foreign_id: str) -> str:
        """Begin to watch the server ``PID@HOST`` and return its id."""
        return await self._foreign.watch(foreign_id, self._new_keeper)

    async def stop_foreign(
        self, foreign_id: str, *, grace_s: float, told: Callable[[ForeignStop], None]
    ) -> ForeignStop:
        """End the server ``PID@HOST``."""
        return await self._foreign.stop(foreign_id, grace_s=grace_s, told=told)

    async def wait_at(
        self,
        url: str,
        *,
        host: str,
        timeout_s: float,
        api_key: str | None = None,
        trust: Trust | None = None,
    ) -> Reached:
        """Wait until the server at an address of a host has generated a token."""
        one = await self._foreign.up(host)
        access = Access(api_key=api_key, trust=trust)
        return await wait_at(url, one, self._clock, access, limit_s=timeout_s)

    # Probe and log.

    def probe_plan(self, server_id: str, overrides: Mapping[str, str] | None = None) -> ProbePlan:
        """Return the profile's probe with ``overrides``."""
        keeper = None if self._probes.knows(server_id) else self._keeper(server_id)
        return self._probes.plan(keeper, overrides or {})

    async def reach(
        self, url: str, *, host: str, api_key: str | None = None, trust: Trust | None = None
    ) -> str:
        """Look at a server at an address of a host and return its id for probes."""
        one = await self._foreign.up(host)
        return await self._probes.reach(url, one, api_key=api_key, trust=trust)

    async def probe(
        self,
        server_id: str,
        plan: ProbePlan | None = None,
        *,
        seen: Callable[[ProbeProgress], None] | None = None,
    ) -> ProbeProgress:
        """Run a probe to its end."""
        chosen = plan or self.probe_plan(server_id)
        if self._probes.knows(server_id):
            return await self._probes.run_at(server_id, chosen, seen)
        return await self._probes.run(self._keeper(server_id), chosen, seen)

    async def environment(self, server_id: str) -> Environment:
        """Return what a running server runs on."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        return await environment_of(self._keeper(server_id), now=now, wall=wall)

    def logs(
        self, server_id: str, *, follow: bool, tail: int | None = None
    ) -> AsyncIterator[LogBatch]:
        """Yield the server's log."""
        keeper = self._keeper(server_id)
        return follow_log(keeper, self._changes, follow=follow, tail=tail)

    def past_log(self, server_id: str) -> PastLog:
        """Return the part of the server's log that stays on its host."""
        return PastLog(self._keeper(server_id))

    # What the hosts tell (``HostListener``).

    def host_changed(self, host: Host) -> None:
        """A host's connection changed."""
        del host
        self._changes.notify()

    def sample_seen(self, host: Host, sample: HostSample) -> None:
        """GPUs were sampled."""
        for keeper in self._keepers.values():
            if keeper.host is host and not keeper.machine.state.ended:
                keeper.sample_seen(sample)
        self._changes.notify()

    def runs_seen(
        self, host: Host, changed: Sequence[RunStatus], gone: Sequence[str], *, first: bool
    ) -> None:
        """Runs of a host changed."""
        for status in newest(changed):
            keeper = self._keepers.get(status.record.id)
            if keeper is not None and status.processes and never_began(keeper):
                self._let_go(keeper)
                keeper = None  # It came late: found like any other.
            if keeper is None:
                self._adopt(host, status)
            else:
                keeper.status_seen(status)
        for run_id in gone:
            keeper = self._keepers.get(run_id)
            # A launch under way is told by the answer to it.
            if keeper is not None and keeper.state not in UNDER_WAY:
                self._let_go(keeper)
        if first:
            there = {status.record.id for status in changed}
            for keeper in self._keepers.values():
                if keeper.host is host and keeper.id not in there:
                    keeper.run_missing()
        self._changes.notify()

    def link_lost(self, host: Host, reason: str) -> None:
        """A host cannot be reached any more."""
        for keeper in self._keepers.values():
            if keeper.host is host:
                keeper.link_lost(reason)
        self._changes.notify()

    # Inside.

    def _settled(self, needs: Needs) -> bool:
        up = [host for host in self._hosts.values() if host.is_up]
        if needs == "runs":
            return True  # They come with the first answer.
        sampled = all(host.sample is not None for host in up)
        keepers = [keeper for keeper in self._keepers.values() if keeper.host in up]
        return sampled and (needs == "gpus" or all(keeper.confirmed for keeper in keepers))

    def _let_go(self, keeper: Keeper) -> None:
        del self._keepers[keeper.id]
        self._leaving.start(f"{keeper.id} {id(keeper)}", keeper.close())

    def _adopt(self, host: Host, status: RunStatus) -> None:
        known = {profile.name: profile for profile in self._profiles.all()}
        try:
            keeper = self._new_keeper(host, profile_of(status.record, known))
        except ConfigError:
            return  # A newer console's engine: that console will keep it.
        self._keepers[status.record.id] = keeper
        keeper.adopt(status)

    def _new_keeper(self, host: Host, profile: Profile) -> Keeper:
        return Keeper(
            host=host,
            engine=engine_named(profile.engine),
            profile=profile,
            clock=self._clock,
            changed=self._changes.notify,
            check=self.check,
            history=self._history,
        )

    def _keeper(self, server_id: str) -> Keeper:
        keeper = self._keepers.get(server_id)
        if keeper is None:
            return self._keepers[self.find(server_id).id]
        return keeper

    def _view(self, keeper: Keeper) -> ServerView:
        return server_view(keeper, now=self._clock.monotonic(), wall=self._clock.wall())

    async def _until(self, keeper: Keeper, reached: Callable[[ServerView], bool]) -> ServerView:
        while True:
            version = self._changes.version
            view = self._view(keeper)
            if reached(view):
                return view
            if self._keepers.get(keeper.id) is not keeper:
                raise ServerError(f"the records of {keeper.id} are gone from {view.host}")
            await self._changes.beyond(version, timeout_s=TICK_S)
