"""Links that break: nothing is lost or doubled, states are right, the console goes on."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eaglemon.app import host as host_module
from eaglemon.app.gpu_watch import GpuWatch
from eaglemon.app.host import Host
from eaglemon.app.hub import Hub
from eaglemon.core.hosts import HostSpec, LinkState
from eaglemon.core.views import HostView, ServerState, Snapshot
from eaglemon.errors import HostError
from eaglemon.io import ssh_target
from eaglemon.io.clock import SystemClock
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.local import LocalTransport
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host import SimHost
from tests.hosts3.bad_network import BadNetwork
from tests.ports import free_port

LIMIT_S = 90.0
CUTS = 30


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "RETRY_FIRST_S", 0.05)
    monkeypatch.setattr(host_module, "RETRY_MOST_S", 0.5)


@asynccontextmanager
async def through(tmp_path: Path, speed: float = 12.0) -> AsyncIterator[tuple[Hub, BadNetwork]]:
    """A hub whose one host, simulated, is behind a bad network."""
    async with SimHost(speed=speed) as sim:
        assert sim.port is not None
        async with BadNetwork(sim.port) as network:
            spec = network.before(sim, tmp_path)
            async with Hub(
                (spec,), ProfileStore.load(), connect=transport_to, workload=load_workload
            ) as hub:
                yield hub, network


async def until(
    hub: Hub, reached: Callable[[HostView], bool], limit_s: float = LIMIT_S
) -> HostView:
    async with asyncio.timeout(limit_s):
        async for snapshot in hub.updates():
            if reached(snapshot.hosts[0]):
                return snapshot.hosts[0]
    raise AssertionError("the updates ended")


def is_up(view: HostView) -> bool:
    return view.state is LinkState.UP and view.sample is not None


def server(snapshot: Snapshot, server_id: str) -> ServerState:
    found = snapshot.server(server_id)
    assert found is not None
    return found.state


@pytest.mark.usefixtures("quick_retries")
async def test_thirty_cuts_during_a_launch(tmp_path: Path) -> None:
    async with through(tmp_path, speed=3.0) as (hub, network):
        await until(hub, is_up)
        host = hub.hosts()[0].name
        plan = hub.plan("sglang-eagle3", host, {"port": str(free_port())})
        server_id = await hub.launch(plan)
        taken: list[str] = []
        states: set[ServerState] = set()

        async def read() -> None:
            async for batch in hub.logs(server_id, follow=True):
                taken.extend(batch.lines)

        reader = asyncio.ensure_future(read())
        for _ in range(CUTS):
            before = network.connections
            network.cut()
            async with asyncio.timeout(LIMIT_S):
                # A cut hits whatever state the next connection is in.
                while network.connections == before:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.25)
            states.add(server(hub.snapshot(), server_id))
        assert network.connections > CUTS
        assert states <= {
            ServerState.LOST,
            ServerState.SPAWNING,
            ServerState.STARTING,
            ServerState.WARMING,
            ServerState.READY,
        }
        await until(hub, is_up)
        async with asyncio.timeout(LIMIT_S):
            while True:
                view = await hub.wait(server_id, timeout_s=LIMIT_S)
                if view.state.answering:
                    break
        snapshot = hub.snapshot()
        assert [one.id for one in snapshot.servers] == [server_id]
        await hub.stop(server_id)
        async with asyncio.timeout(LIMIT_S):
            await reader
        whole: list[str] = []
        async for batch in hub.logs(server_id, follow=False):
            whole.extend(batch.lines)
        assert taken == whole
        assert len(whole) > 20


async def test_a_half_open_link_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is promised is 15 s: that many unanswered questions, so long apart, and the last wait.
    assert ssh_target.KEEPALIVE_S * (ssh_target.KEEPALIVE_MISSES + 1) <= 15.0
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 2.5)
    monkeypatch.setattr(host_module, "STALE_AFTER_S", 2.0)
    async with through(tmp_path) as (hub, network):
        first = await until(hub, is_up)
        network.stall()
        stale = await until(hub, lambda view: view.state is LinkState.STALE)
        assert "no sample for" in stale.detail
        assert stale.sample_age_s is not None
        down = await until(hub, lambda view: view.state is LinkState.DOWN)
        assert "stopped answering" in down.detail
        assert down.next_try_s is not None
        # What was known stays on screen.
        assert down.sample is not None
        assert first.sample is not None
        assert down.sample.gpus[0].uuid == first.sample.gpus[0].uuid
        network.cut()
        network.go_on()
        again = await until(hub, is_up)
        assert again.sample is not None
        assert again.sample.at > first.sample.at


@pytest.mark.usefixtures("quick_retries")
async def test_a_half_closed_link_comes_back(tmp_path: Path) -> None:
    async with through(tmp_path) as (hub, network):
        await until(hub, is_up)
        network.half_close()
        await until(hub, lambda view: view.state is not LinkState.UP)
        await until(hub, is_up)


async def test_a_slow_link_is_up_and_the_console_answers_at_once(tmp_path: Path) -> None:
    async with through(tmp_path) as (hub, network):
        network.delay_s = 0.15
        await until(hub, is_up)
        times_s: list[float] = []
        for _ in range(51):
            started_at = time.perf_counter()
            hub.snapshot()
            times_s.append(time.perf_counter() - started_at)
            await asyncio.sleep(0)
        # One that asked the host would take two delays each time; a busy machine delays a few.
        assert sorted(times_s)[25] < network.delay_s


class Waits(GpuWatch):
    """Notes how long each pause before another attempt is to be."""

    seen: list[float]

    def host_changed(self, host: Host) -> None:
        waits_s = host.view().next_try_s
        if waits_s is not None:
            self.seen.append(waits_s)


class Standing(SystemClock):
    """A clock that does not go on: what is left of a pause is all of it."""

    def monotonic(self) -> float:
        return 100.0


class Refuses(LocalTransport):
    """A host that lets nobody in."""

    async def connect(self) -> None:
        raise HostError("nobody is let in")


async def test_attempts_back_off_and_say_when(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1, 2, 4 s and so on up to 30 s, each by a fifth more or less; here a hundredth of it.
    assert (host_module.RETRY_FIRST_S, host_module.RETRY_MOST_S) == (1.0, 30.0)
    monkeypatch.setattr(host_module, "RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(host_module, "RETRY_MOST_S", 0.3)
    waits = Waits((), connect=transport_to)
    waits.seen = []
    host = Host(
        HostSpec(name="gpu-a"),
        connect=lambda spec: Refuses(spec.name),
        listener=waits,
        clock=Standing(),
    )
    trying = asyncio.create_task(host.run())
    async with asyncio.timeout(LIMIT_S):
        while len(waits.seen) < 7:
            await asyncio.sleep(0.01)
    trying.cancel()
    await asyncio.gather(trying, return_exceptions=True)
    for waited_s, pause_s in zip(
        waits.seen, (0.01, 0.02, 0.04, 0.08, 0.16, 0.3, 0.3), strict=False
    ):
        assert 0.8 * pause_s <= waited_s + 1e-9
        assert waited_s <= 1.2 * pause_s + 1e-9
