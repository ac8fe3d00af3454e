"""How soon the console tells what happened, on the simulated host: run it, read the table.

    python benchmarks/lifecycle.py [--rounds 5] [--speed 8]

Each figure is the console's own delay: from the moment that the process, the engine or the driver
changed, as seen by a second observer on this machine, until the snapshot that a screen would show.
The simulated host is on loopback; a real link adds its delay.
"""

import argparse
import asyncio
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from eaglemon.app.experiments import ExperimentService
from eaglemon.app.hub import Hub
from eaglemon.core.experiment import ExperimentPlan, StopRules
from eaglemon.core.views import ServerState, ServerView
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.store import Store
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host import SimHost

LIMIT_S = 120.0
TARGET_S = 0.5
MEMORY_TARGET_S = 0.6
"""The driver itself is sampled, not asked to tell."""
TURN_TARGET_S = 1.0
TURN = "A/B turn-round beyond the engine's own stop and start"
STARTS = (("sglang-eagle3", ""), ("vllm-eagle3", ""), ("vllm-eagle3", "no-log"))
LOOK_S = 0.002


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def shown(hub: Hub, server: str, reached: Callable[[ServerView], bool]) -> float:
    """Return when a snapshot of the server first fits, by the monotonic clock."""
    async with asyncio.timeout(LIMIT_S):
        async for snapshot in hub.updates():
            view = snapshot.server(server)
            if view is not None and reached(view):
                return time.monotonic()
    raise TimeoutError(server)


async def good_answer(port: int) -> float:
    """Return when the health path first answers 200, asked from beside the console."""
    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
        while True:
            try:
                answer = await client.get(f"http://127.0.0.1:{port}/health")
            except httpx.HTTPError:
                await asyncio.sleep(0.01)
                continue
            if answer.status_code == 200:
                return time.monotonic()
            await asyncio.sleep(0.01)


async def gone(pids: tuple[int, ...]) -> float:
    """Return when no process of ``pids`` is left (zombies count as gone)."""
    while any(_lives(pid) for pid in pids):  # noqa: ASYNC110 -- nobody tells, it must be looked at
        await asyncio.sleep(LOOK_S)
    return time.monotonic()


def _lives(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


async def one_round(profile: str, speed: float, fault: str = "") -> dict[str, float]:
    """Start, watch and stop one server; return the delays in seconds."""
    env = {"EAGLEMON_SIM_FAULT": fault} if fault else {}
    sim = SimHost(speed=speed, env=env)
    async with (
        sim as spec,
        Hub((spec,), ProfileStore.load(), connect=transport_to, workload=load_workload) as hub,
    ):
        await hub.settle()
        port = free_port()
        plan = hub.plan(profile, spec.name, {"port": str(port)})
        server = await hub.launch(plan)
        ready, answered = await asyncio.gather(
            shown(hub, server, lambda view: view.state is ServerState.READY), good_answer(port)
        )
        figures = {
            f"good answer -> ready ({profile}{', silent' if fault else ''})": ready - answered
        }
        pids = hub.find(server).pids
        stopping = asyncio.create_task(hub.stop(server, grace_s=10.0))
        empty = await gone(pids)
        stopped = await shown(hub, server, lambda view: view.state is ServerState.STOPPED)
        await stopping
        figures[f"last process gone -> memory proven back ({profile})"] = stopped - empty

        again = await hub.launch(hub.plan(profile, spec.name, {"port": str(free_port())}))
        await shown(hub, again, lambda view: view.pid is not None and bool(view.pids))
        leader = hub.find(again).pid or 0
        told = asyncio.create_task(shown(hub, again, lambda view: view.state is ServerState.FAILED))
        os.kill(leader, signal.SIGKILL)
        dead = await gone((leader,))
        figures[f"exit -> failed ({profile})"] = await told - dead
        if hub.find(again).pids:
            await hub.stop(again, grace_s=0.0)
    return figures


async def turn_rounds(speed: float, folder: Path) -> list[float]:
    """Compare two profiles on one port in two rounds; return the seconds of each turn between."""
    store = Store(folder / "history.sqlite3")
    async with (
        SimHost(speed=speed) as spec,
        Hub((spec,), ProfileStore.load(), connect=transport_to, workload=load_workload) as hub,
    ):
        await hub.settle()
        experiments = ExperimentService(hub, store)
        settings = {"port": str(free_port()), "probe.requests": "8", "probe.max_tokens": "32"}
        arms = tuple(
            experiments.arm(name, spec.name, settings)
            for name in ("sglang-baseline", "sglang-eagle3")
        )
        plan = ExperimentPlan(id="turns", arms=arms, rounds=2, stop=StopRules(half_width=0.0))
        await experiments.run(plan)
        record = await experiments.record("turns")
    await store.close()
    return [one.turn_s for one in record.trials if one.turn_s is not None and one.startup_s]


async def measure(rounds: int, speed: float) -> int:
    """Print the table; returns 1 when a median misses the target."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for profile, fault in STARTS:
            for name, seconds in (await one_round(profile, speed, fault)).items():
                found.setdefault(name, []).append(seconds)
    with tempfile.TemporaryDirectory() as folder:
        found[TURN] = await turn_rounds(speed, Path(folder))
    print(f"{'from -> to':62} {'median':>8} {'worst':>8} {'target':>8}")
    missed = 0
    for name, values in found.items():
        median = statistics.median(values)
        target = MEMORY_TARGET_S if "memory" in name else TARGET_S
        target = TURN_TARGET_S if name == TURN else target
        missed += median > target
        print(f"{name:62} {median:7.2f}s {max(values):7.2f}s {target:7.2f}s")
    return 1 if missed else 0


def main() -> int:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--speed", type=float, default=8.0)
    arguments = parser.parse_args()
    return asyncio.run(measure(arguments.rounds, arguments.speed))


if __name__ == "__main__":
    sys.exit(main())
