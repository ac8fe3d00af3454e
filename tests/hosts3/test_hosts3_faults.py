"""Links that break: nothing is lost or doubled, states are right, the console goes on."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eaglemon.app import host as host_module
from eaglemon.app.hub import Hub
from eaglemon.core.hosts import LinkState
from eaglemon.core.views import HostView, ServerState, Snapshot
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
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


async def test_a_half_open_link_is_noticed_within_15_s(tmp_path: Path) -> None:
    async with through(tmp_path) as (hub, network):
        first = await until(hub, is_up)
        network.stall()
        started_at = time.monotonic()
        stale = await until(hub, lambda view: view.state is LinkState.STALE)
        assert "no sample for" in stale.detail
        assert stale.sample_age_s is not None
        down = await until(hub, lambda view: view.state is LinkState.DOWN, 20.0)
        assert time.monotonic() - started_at < 15.5
        assert "stopped answering" in down.detail
        assert down.next_try_s is not None
        assert 0 <= down.next_try_s <= 1.5
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
        worst_s = 0.0
        for _ in range(50):
            started_at = time.perf_counter()
            hub.snapshot()
            worst_s = max(worst_s, time.perf_counter() - started_at)
            await asyncio.sleep(0)
        # The target is 50 ms from key to repaint; a shared machine gets as much for this alone.
        assert worst_s < 0.05


async def test_attempts_back_off_and_say_when(tmp_path: Path) -> None:
    async with through(tmp_path) as (hub, network):
        await until(hub, is_up)
        network.refuses = True
        network.cut()
        waits: list[float] = []
        async with asyncio.timeout(LIMIT_S):
            async for snapshot in hub.updates():
                view = snapshot.hosts[0]
                if view.state is LinkState.DOWN and view.next_try_s is not None:
                    if not waits or view.next_try_s > waits[-1]:
                        waits.append(view.next_try_s)
                    if len(waits) == 3:
                        break
        # 1, 2 and 4 s, each by a fifth more or less.
        assert 0.5 < waits[0] < 1.3
        assert 1.3 < waits[1] < 2.5
        assert 2.9 < waits[2] < 4.9
        network.refuses = False
