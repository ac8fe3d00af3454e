"""Draws the pictures of the documentation from the console itself, on the simulated host.

Run it from the root of a checkout: ``python docs/make_pictures.py``. It launches servers, probes
one, lets one fail, and writes ``docs/console.svg``, ``docs/server.svg``,
``docs/failed.svg``, ``docs/log.svg`` and ``docs/host.svg``.
"""

import asyncio
import socket
from pathlib import Path

from eaglemon.app.hub import Hub
from eaglemon.cli.tui import themes
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host import SimHost
from eaglemon.tui.app import ConsoleApp

FOLDER = Path(__file__).parent
SIZE = (120, 36)


def free_port() -> str:
    """Return a port that nobody uses: the simulated host shares this machine's loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


async def main() -> None:
    """Draw all pictures."""
    sim = SimHost(name="h200-a", speed=4.0)
    profiles = ProfileStore.load()
    async with (
        sim as spec,
        Hub((spec,), profiles, connect=transport_to, workload=load_workload) as hub,
    ):
        await hub.settle()
        app = ConsoleApp(hub, themes=themes())
        async with app.run_test(size=SIZE) as pilot:

            async def draw(name: str) -> None:
                await asyncio.sleep(1.2)
                await pilot.pause()
                text = app.export_screenshot(title="eaglemon")
                (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")

            async def launch(profile: str, **values: str) -> str:
                plan = hub.plan(profile, spec.name, {"port": free_port(), **values})
                return await hub.launch(plan, force=True)

            ready = await launch("sglang-eagle3", gpus="0")
            await hub.wait(ready)
            failed = await launch("sglang-baseline", gpus="2", model="/models/missing")
            await hub.wait(failed)
            probe = hub.probe_plan(ready, {"requests": "24", "concurrency": "4"})
            probing = asyncio.create_task(hub.probe(ready, probe))
            starting = await launch("vllm-eagle3", gpus="1")
            await draw("console")
            await probing
            await asyncio.sleep(4)
            app.open_server(ready)
            await draw("server")
            app.open_log(ready)
            await pilot.press("slash", *"prefill", "enter")
            await draw("log")
            app.pop_screen()
            app.open_server(failed)
            await draw("failed")
            app.open_host(spec.name)
            await draw("host")
            await hub.wait(starting)


if __name__ == "__main__":
    asyncio.run(main())
