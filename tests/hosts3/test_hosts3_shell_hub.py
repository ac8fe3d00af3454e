"""The main job on a host without python3: launch, ready, log, stop, through the hub."""

import asyncio
import dataclasses

import pytest

from eaglemon.app.hub import Hub
from eaglemon.core.hosts import LinkState
from eaglemon.core.views import ServerState
from eaglemon.errors import AgentError
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host import SimHost
from tests.ports import free_port

LIMIT_S = 90.0


async def test_launch_log_and_stop_without_python() -> None:
    async with SimHost(speed=12.0) as sim:
        # The simulated engines still need theirs: only the agent finds none.
        spec = dataclasses.replace(sim, python="/no/python3")
        async with Hub(
            (spec,), ProfileStore.load(), connect=transport_to, workload=load_workload
        ) as hub:
            snapshot = await hub.settle()
            (host,) = snapshot.hosts
            assert host.state is LinkState.DEGRADED
            assert "no python3" in host.detail
            plan = hub.plan("sglang-eagle3", spec.name, {"port": str(free_port())})
            server_id = await hub.launch(plan, force=True)
            ready = await hub.wait(server_id, timeout_s=LIMIT_S)
            assert ready.state is ServerState.READY
            assert ready.pid is not None
            lines: list[str] = []
            async with asyncio.timeout(LIMIT_S):
                async for batch in hub.logs(server_id, follow=False):
                    lines.extend(batch.lines)
            assert len(lines) > 20
            past = hub.past_log(server_id)
            async with asyncio.timeout(LIMIT_S):
                begin = sum(len(line.encode()) + 1 for line in lines[:1])
                assert (await past.read(0, begin))[0] == lines[0]
                with pytest.raises(AgentError, match="has no python3"):
                    async for _ in past.places(begin):
                        pass
            stopped = await hub.stop(server_id)
            assert stopped.pids == ()
            assert stopped.stop is not None
            assert any("TERM" in step for step in stopped.stop.steps)
