import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from eaglemon.app.history import StartHistory
from eaglemon.app.hub import Hub
from eaglemon.core.hosts import HostSpec
from eaglemon.core.views import ServerState, ServerView, Snapshot
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host import SimHost
from tests.ports import free_port

LIMIT_S = 60.0


@dataclass(frozen=True)
class Desk:
    """A console on a simulated host."""

    hub: Hub
    spec: HostSpec
    sim: SimHost

    async def start(
        self, profile: str = "sglang-eagle3", settings: Mapping[str, str] | None = None
    ) -> str:
        plan = self.hub.plan(
            profile, self.spec.name, {"port": str(free_port()), **(settings or {})}
        )
        return await self.hub.launch(plan)

    async def until(self, server_id: str, reached: Callable[[ServerView], bool]) -> ServerView:
        def fits(snapshot: Snapshot) -> bool:
            view = snapshot.server(server_id)
            return view is not None and reached(view)

        async with asyncio.timeout(LIMIT_S):
            async for snapshot in self.hub.updates():
                if fits(snapshot):
                    view = snapshot.server(server_id)
                    assert view is not None
                    return view
        raise AssertionError("unreachable")

    async def ready(self, server_id: str) -> ServerView:
        view = await self.hub.wait(server_id, timeout_s=LIMIT_S)
        assert view.state is ServerState.READY, view.detail
        return view


@asynccontextmanager
async def desk(
    *, fault: str = "", speed: float = 12.0, history: StartHistory | None = None
) -> AsyncIterator[Desk]:
    """A console on a fresh simulated host."""
    sim = SimHost(speed=speed, env={"EAGLEMON_SIM_FAULT": fault} if fault else {})
    async with sim as spec, console(spec, history=history) as hub:
        await hub.settle()
        yield Desk(hub, spec, sim)


@asynccontextmanager
async def console(
    spec: HostSpec, *, project: Path | None = None, history: StartHistory | None = None
) -> AsyncIterator[Hub]:
    profiles = ProfileStore.load(project=project)
    async with Hub(
        (spec,), profiles, connect=transport_to, workload=load_workload, history=history
    ) as hub:
        yield hub
