"""A console whose servers are values: every step is instant, and may be made to break."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace

from eaglemon.core.experiment_records import Environment
from eaglemon.core.hosts import HostSpec, LinkState
from eaglemon.core.probe import ProbePlan, ProbeProgress, Prompt, figures_of
from eaglemon.core.problems import Problem
from eaglemon.core.views import (
    CauseView,
    HostView,
    LaunchPlan,
    ServerState,
    ServerView,
    Snapshot,
    StopView,
)
from eaglemon.errors import ServerError, UsageError
from tests.experiments.arms import arm
from tests.stats.trials import record

HOST = "gpu-a"
SPEEDS = {"base": 100.0, "fast": 150.0, "slow": 60.0}


class Killed(BaseException):
    """The console's process is gone: nothing after it may run."""


class FakeHost:
    """What outlives a console: its servers."""

    def __init__(self) -> None:
        self.servers: dict[str, ServerView] = {}
        self.state = LinkState.UP
        self.count = 0

    @property
    def living(self) -> list[str]:
        return [view.id for view in self.servers.values() if not view.state.ended]


class FakeBench:
    """A console of a ``FakeHost``. ``hook`` is called at each step, and may raise or wait."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.steps: list[str] = []
        self.broken: set[str] = set()
        """Profiles whose servers do not come up."""
        self.crashing: set[str] = set()
        """Profiles whose servers die of the first probe."""
        self.hook: Callable[[str], None] = lambda _: None
        self.standing: dict[str, list[Problem]] = {}
        """What stands against launches, by profile."""
        self.pause: dict[str, asyncio.Event] = {}

    async def _step(self, name: str) -> None:
        self.steps.append(name)
        if name in self.pause:
            await self.pause[name].wait()
        self.hook(name)

    def snapshot(self) -> Snapshot:
        host = HostView(spec=HostSpec(name=HOST), state=self.host.state)
        return Snapshot(at=0.0, hosts=(host,), servers=tuple(self.host.servers.values()))

    async def updates(self) -> AsyncIterator[Snapshot]:
        while True:
            yield self.snapshot()
            await asyncio.sleep(0.001)

    async def settle(self, *, timeout_s: float = 20.0, needs: str = "servers") -> Snapshot:
        return self.snapshot()

    def plan(
        self, profile: str, host: str, overrides: Mapping[str, str] | None = None
    ) -> LaunchPlan:
        if profile not in SPEEDS and profile != "other":
            raise UsageError(f"no profile {profile!r}")
        steps = None if profile == "base" else len(profile)
        made = arm(profile, steps=steps)
        return LaunchPlan(host=host, profile=made.profile, argv=(), shell_line=made.shell_line)

    async def check(self, plan: LaunchPlan) -> list[Problem]:
        return list(self.standing.get(plan.profile.name, ()))

    def relaunch_plan(self, server_id: str) -> LaunchPlan:
        view = self.host.servers[server_id]
        return self.plan(view.profile, view.host)

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        await self._step("launch")
        if self.host.living:
            raise ServerError(f"port in use by {self.host.living}")
        self.host.count += 1
        name = f"{plan.profile.name}-{self.host.count}"
        self.host.servers[name] = self.view(name, plan)
        await self._step("launched")
        return name

    def view(self, name: str, plan: LaunchPlan) -> ServerView:
        return ServerView(
            id=name,
            name=plan.profile.name,
            host=plan.host,
            profile=plan.profile.name,
            engine="sglang",
            state=ServerState.STARTING,
            command_line=plan.shell_line,
            port=plan.profile.port,
            gpu_indexes=(0,),
            pids=(1,),
            launched_at=100.0,
            age_s=0.0,
        )

    async def wait(self, server_id: str, *, timeout_s: float | None = None) -> ServerView:
        await self._step("wait")
        view = self.host.servers[server_id]
        if view.state is ServerState.STARTING and view.profile in self.broken:
            cause = CauseView(slug="oom", sentence="oom", decisive_line="CUDA out of memory")
            view = replace(view, state=ServerState.FAILED, cause=cause, pids=())
        elif view.state is ServerState.STARTING:
            view = replace(view, state=ServerState.READY, ready_at=130.0)
        self.host.servers[server_id] = view
        return view

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        await self._step("stop")
        view = replace(
            self.host.servers[server_id],
            state=ServerState.STOPPED,
            pids=(),
            stop=StopView(steps=("gone",), proven=True, elapsed_s=1.0),
        )
        self.host.servers[server_id] = view
        await self._step("stopped")
        return view

    async def probe(
        self,
        server_id: str,
        plan: ProbePlan | None = None,
        *,
        seen: Callable[[ProbeProgress], None] | None = None,
    ) -> ProbeProgress:
        await self._step("probe")
        assert plan is not None
        view = self.host.servers[server_id]
        if view.profile in self.crashing:
            cause = CauseView(slug="crash", sentence="crash", decisive_line="Traceback")
            dead = replace(view, state=ServerState.FAILED, cause=cause, pids=())
            self.host.servers[server_id] = dead
            raise ServerError("none of 8 requests ended well")
        await self._step("probed")
        speed = SPEEDS[view.profile]
        records = tuple(record(i, speed * (1 + 0.01 * i)) for i in range(plan.requests))
        return ProbeProgress(
            server_id=server_id,
            plan=plan,
            state="done",
            done=plan.requests,
            elapsed_s=1.0,
            remaining_s=None,
            figures=figures_of(records),
            records=records,
        )

    def probe_plan(self, server_id: str, overrides: Mapping[str, str] | None = None) -> ProbePlan:
        values = overrides or {}
        return ProbePlan(
            workload="chat",
            prompts=(Prompt(id="a", text="b"),),
            requests=int(values["requests"]),
            concurrency=1,
            nonce="x",
        )

    async def environment(self, server_id: str) -> Environment:
        return Environment(host=HOST, engine="sglang", resolved={"page_size": "1"})
