"""The main job through the hub on the simulated host: real SSH, agent, processes and signals."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from eaglemon.app.hub import Hub
from eaglemon.core.hosts import LinkState
from eaglemon.core.phases import Phase
from eaglemon.core.views import PhaseState, ServerState, ServerView, Snapshot
from eaglemon.errors import LaunchRefusedError, UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host import SimHost
from tests.ports import free_port

SPEED = 12.0
LIMIT_S = 60.0


@asynccontextmanager
async def console(
    *, fault: str = "", speed: float = SPEED
) -> AsyncIterator[tuple[Hub, str, SimHost]]:
    """A hub on a fresh simulated host."""
    sim = SimHost(speed=speed, env={"EAGLEMON_SIM_FAULT": fault} if fault else {})
    profiles = ProfileStore.load()
    async with (
        sim as spec,
        Hub((spec,), profiles, connect=transport_to, workload=load_workload) as hub,
    ):
        yield hub, spec.name, sim


async def until(hub: Hub, reached: Callable[[Snapshot], bool]) -> Snapshot:
    """Wait for a snapshot, for at most ``LIMIT_S``."""
    async with asyncio.timeout(LIMIT_S):
        async for snapshot in hub.updates():
            if reached(snapshot):
                return snapshot
    raise AssertionError("unreachable")


def phases_done(view: ServerView) -> list[Phase]:
    return [phase.phase for phase in view.phases if phase.state is PhaseState.DONE]


async def test_launch_probe_kill_and_memory_back() -> None:
    async with console() as (hub, host, _):
        snapshot = await hub.settle()
        view = snapshot.host(host)
        assert view is not None
        assert view.state is LinkState.UP
        assert view.sample is not None
        assert len(view.sample.gpus) == 8
        idle = view.sample.gpus[0].memory_used_bytes

        server_id = await hub.launch(hub.plan("sglang-eagle3", host, {"port": str(free_port())}))
        ready = await hub.wait(server_id, timeout_s=LIMIT_S)
        assert ready.state is ServerState.READY
        assert {
            Phase.LOAD_TARGET,
            Phase.LOAD_DRAFT,
            Phase.KV_CACHE,
            Phase.GRAPH_CAPTURE,
            Phase.HTTP_OPEN,
            Phase.READY,
        } <= set(phases_done(ready))
        assert ready.ready_at is not None

        held = await until(
            hub, lambda s: (s.server(server_id) or ready).memory_used_bytes is not None
        )
        found = held.server(server_id)
        assert found is not None
        assert found.memory_used_bytes is not None
        assert found.memory_used_bytes > 10 * 1024**3

        probe = await hub.probe(
            server_id,
            hub.probe_plan(server_id, {"requests": "4", "max-tokens": "48", "warmup": "1"}),
        )
        assert probe.figures.ok == 4
        assert probe.figures.accept_length is not None
        assert 1.5 < probe.figures.accept_length < 6
        assert probe.figures.accept_source == "per-request answers"

        stopped = await hub.stop(server_id, grace_s=3.0)
        assert stopped.state is ServerState.STOPPED
        assert stopped.stop is not None
        assert stopped.stop.proven
        assert stopped.pids == ()
        after = hub.snapshot().host(host)
        assert after is not None
        assert after.sample is not None
        back = await until(
            hub,
            lambda s: _used(s, host, 0) == idle,
        )
        assert _used(back, host, 0) == idle


def _used(snapshot: Snapshot, host: str, index: int) -> int | None:
    view = snapshot.host(host)
    if view is None or view.sample is None:
        return None
    return view.sample.gpus[index].memory_used_bytes


async def test_a_second_console_adopts_the_server_and_may_stop_it() -> None:
    async with console() as (first, host, _):
        await first.settle()
        server_id = await first.launch(
            first.plan("sglang-eagle3", host, {"port": str(free_port())})
        )
        await first.wait(server_id, timeout_s=LIMIT_S)
        spec = first.hosts()[0]
        profiles = ProfileStore.load()
        async with Hub((spec,), profiles, connect=transport_to, workload=load_workload) as second:
            await second.settle()
            view = await second.wait(server_id, timeout_s=LIMIT_S)
            assert view.state is ServerState.READY
            assert Phase.GRAPH_CAPTURE in phases_done(view)
            live = first.find(server_id)
            for seen, late in zip(live.phases, view.phases, strict=True):
                if seen.started_s is not None and late.started_s is not None:
                    # Stamps are whole seconds, and a busy machine is late to see a line live.
                    assert -60.0 < late.started_s - seen.started_s < 2.0, seen.phase
            stopped = await second.stop(server_id, grace_s=3.0)
            assert stopped.state is ServerState.STOPPED
        followed = await first.wait(server_id, timeout_s=LIMIT_S)
        assert followed.state in {ServerState.STOPPED, ServerState.RELEASING}


async def test_failure_is_told_with_its_cause() -> None:
    async with console(fault="oom") as (hub, host, _):
        await hub.settle()
        server_id = await hub.launch(hub.plan("sglang-eagle3", host, {"port": str(free_port())}))
        view = await hub.wait(server_id, timeout_s=LIMIT_S)
        assert view.state is ServerState.FAILED
        told = await until(hub, lambda s: _cause(s, server_id) is not None)
        assert _cause(told, server_id) is not None
        found = told.server(server_id)
        assert found is not None
        assert found.cause is not None
        assert found.cause.decisive_line is not None
        assert found.cause.remedy


def _cause(snapshot: Snapshot, server_id: str) -> str | None:
    view = snapshot.server(server_id)
    return view.cause.slug if view is not None and view.cause is not None else None


async def test_a_busy_port_is_refused_before_anything_starts() -> None:
    async with console() as (hub, host, _):
        await hub.settle()
        taken = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        async with taken:
            port = taken.sockets[0].getsockname()[1]
            plan = hub.plan("sglang-eagle3", host, {"port": str(port)})
            with pytest.raises(
                LaunchRefusedError,
                match=f"^port {port}: in use on {host} by PID \\d+.*; stop it, or",
            ):
                await hub.launch(plan)
        assert all(server.pid is None for server in hub.snapshot().servers)


async def test_unknown_names_name_the_nearest() -> None:
    async with console() as (hub, host, _):
        with pytest.raises(UsageError, match="did you mean"):
            hub.plan("sglang-eagle3", host + "x")
        await hub.settle()
        with pytest.raises(UsageError, match="no server is running"):
            hub.find("nothing")


async def test_log_is_read_whole_and_by_its_tail() -> None:
    async with console() as (hub, host, _):
        await hub.settle()
        server_id = await hub.launch(hub.plan("sglang-eagle3", host, {"port": str(free_port())}))
        await hub.wait(server_id, timeout_s=LIMIT_S)
        whole = [line async for b in hub.logs(server_id, follow=False) for line in b.lines]
        tail = [line async for b in hub.logs(server_id, follow=False, tail=3) for line in b.lines]
        assert any("ready to roll" in line for line in whole)
        assert any("Load weight begin" in line for line in whole)
        assert len(tail) == 3
        assert whole[-3:] == tail or tail[-1] == whole[-1] or len(whole) > 3


async def test_a_dropped_link_is_lost_then_ready_again() -> None:
    async with console() as (hub, host, sim):
        await hub.settle()
        server_id = await hub.launch(hub.plan("sglang-eagle3", host, {"port": str(free_port())}))
        await hub.wait(server_id, timeout_s=LIMIT_S)
        sim.cut()
        await until(hub, lambda s: _state(s, server_id) is ServerState.LOST)
        await until(hub, lambda s: _state(s, server_id) is ServerState.READY)


def _state(snapshot: Snapshot, server_id: str) -> ServerState | None:
    view = snapshot.server(server_id)
    return view.state if view is not None else None


async def test_another_server_on_the_port_is_never_taken_for_ours() -> None:
    async with console(speed=3.0) as (hub, host, _):
        await hub.settle()
        port = str(free_port())
        first = await hub.launch(hub.plan("sglang-eagle3", host, {"port": port}))
        await hub.wait(first, timeout_s=LIMIT_S)
        second = await hub.launch(
            hub.plan("sglang-eagle3", host, {"port": port, "gpus": "1"}), force=True
        )
        told = await until(hub, lambda s: "not this server" in _health(s, second))
        assert _state(told, second) is ServerState.STARTING
        failed = await hub.wait(second, timeout_s=LIMIT_S)
        assert failed.state is ServerState.FAILED
        assert failed.cause is not None
        assert failed.cause.slug == "port-in-use"
        named = await until(hub, lambda s: "answered by PID" in _detail(s, second))
        assert "left behind" in _detail(named, second)
        stopped = await hub.stop(second, grace_s=2.0)
        assert stopped.pids == ()
        assert _state(hub.snapshot(), first) is ServerState.READY


def _detail(snapshot: Snapshot, server_id: str) -> str:
    view = snapshot.server(server_id)
    return view.detail if view is not None else ""


def _health(snapshot: Snapshot, server_id: str) -> str:
    view = snapshot.server(server_id)
    return view.health.detail if view is not None and view.health is not None else ""
