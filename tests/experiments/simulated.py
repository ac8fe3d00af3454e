"""A console with a history on a fresh simulated host, and quick arms for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from eaglemon.app.experiments import ExperimentService
from eaglemon.app.hub import Hub
from eaglemon.core.experiment import Arm
from eaglemon.core.hosts import HostSpec
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.store import Store
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host import SimHost

SPEED = 15.0
LIMIT_S = 90.0
QUICK = {
    "probe.requests": "8",
    "probe.concurrency": "4",
    "probe.max_tokens": "32",
    "probe.warmup": "1",
    "limits.stop_grace_s": "3",
}


@dataclass
class Bench:
    """All that an experiment of a test needs."""

    sim: SimHost
    spec: HostSpec
    hub: Hub
    store: Store
    experiments: ExperimentService

    def arm(self, text: str, *, port: int | None = None, name: str = "", **more: str) -> Arm:
        settings = {**QUICK, **more}
        if port is not None:
            settings["port"] = str(port)
        return self.experiments.arm(text, self.spec.name, settings, name=name)

    @property
    def living(self) -> list[str]:
        """Servers with a process."""
        servers = self.hub.snapshot().servers
        return [view.id for view in servers if view.pids or not view.state.ended]


@asynccontextmanager
async def console_on(sim: SimHost, spec: HostSpec, path: Path) -> AsyncIterator[Bench]:
    """A console on a host that runs already."""
    store = Store(path)
    profiles = ProfileStore.load()
    async with Hub((spec,), profiles, connect=transport_to, workload=load_workload) as hub:
        await hub.settle()
        yield Bench(sim, spec, hub, store, ExperimentService(hub, store))
    await store.close()


@asynccontextmanager
async def bench(path: Path, *, speed: float = SPEED) -> AsyncIterator[Bench]:
    """A console on a fresh simulated host."""
    sim = SimHost(speed=speed)
    async with sim as spec, console_on(sim, spec, path) as opened:
        yield opened
