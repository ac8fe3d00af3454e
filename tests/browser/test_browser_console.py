"""The console in a real browser: opt-in (``make test-browser``), it needs Chromium.

Prints its figures. Pictures are left in the folder that EAGLEMON_PICTURES names, where it is set.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.sim.host import SimHost
from tests.browser.chromium import Page, browser
from tests.ports import free_port

pytestmark = pytest.mark.browser

TOKEN = "a-token-for-this-test"
QUIET_S = 5.0
"""Over which the bytes to a quiet page are counted."""


def configure(home: Path, sim: HostSpec) -> None:
    """Write the simulated host and a profile on a free port."""
    keys = {"address": sim.address, "known_hosts": sim.known_hosts, "identity": sim.identity}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value]
    if sim.user:
        lines.append(f"user = {json.dumps(sim.user)}")
    text = "\n".join(["[hosts.gpu-a]", *lines, f"port = {sim.port}", 'ssh_config = ""'])
    folder = home / "config" / "eaglemon"
    (folder / "profiles").mkdir(parents=True)
    (folder / "hosts.toml").write_text(text, encoding="utf-8")
    profile = f'extends = "sglang-eagle3"\nport = {free_port()}\n'
    (folder / "profiles" / "a-eagle3.toml").write_text(profile, encoding="utf-8")


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[str]:
    """Serve the console on the host and give the address."""
    port = free_port()
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "EAGLEMON_SERVE_TOKEN": TOKEN,
        "PYTHONUTF8": "1",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eaglemon", "serve", "gpu-a", "--port", str(port)),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode().strip()
        assert line == f"http://127.0.0.1:{port}/?token={TOKEN}"
        address = line.partition("/?")[0]
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            break
        yield address
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def setting(tmp_path: Path) -> AsyncIterator[tuple[str, Page]]:
    home = tmp_path / "home"
    async with SimHost(speed=12.0) as sim:
        configure(home, sim)
        async with serving(home) as address, browser(tmp_path / "chromium") as page:
            yield address, page


def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("EAGLEMON_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def test_the_main_job_in_a_browser(tmp_path: Path) -> None:
    figures: dict[str, float] = {}
    async with setting(tmp_path) as (address, page):
        for path in ("/", "/?token=wrong"):
            await page.open(address + path)
            told = await page.value("document.body.innerText")
            assert "open the address that eaglemon serve printed" in told
            assert page.drawn == b""
        began = time.monotonic()
        await page.open(f"{address}/?token={TOKEN}")
        await page.shows("Hosts and GPUs")
        figures["first picture, s"] = time.monotonic() - began
        assert TOKEN not in await page.value("location.href")
        await page.shows("gpu-a  ● UP")
        await page.shows("H200")
        figures["GPUs on the page, s"] = time.monotonic() - began
        await page.until("document.querySelector('textarea') !== null")
        await page.value("document.querySelector('textarea').focus()")
        whole = await page.picture(pictures(tmp_path) / "fleet.png")
        assert len(whole) > 20_000

        pressed = time.monotonic()
        await page.press("?")
        await page.shows("esc closes")
        figures["key to picture, s"] = time.monotonic() - pressed
        await page.press("Escape", "Escape", 27)
        # Escape and a key right after it would be one key with Alt.
        await page.hides("esc closes")

        await page.press("s")
        await page.shows("a-eagle3")
        await page.shows("nothing stands against")
        await page.press("s", ctrl=True)
        began = time.monotonic()
        await page.shows("Start-up")
        await page.shows("● READY")
        figures["start to ready, s"] = time.monotonic() - began
        await page.picture(pictures(tmp_path) / "server.png")

        await page.press("K")
        await page.shows("Kill a-eagle3 on gpu-a?")
        began = time.monotonic()
        await page.press("y")
        await page.shows("proven after")
        figures["kill to proof, s"] = time.monotonic() - began

        await page.press("Escape", "Escape", 27)
        await page.resize(640, 420)
        await page.shows("1 Hosts")
        quiet = len(page.drawn)
        await asyncio.sleep(QUIET_S)
        await page.picture(pictures(tmp_path) / "small.png")
        # All of it was drawn again for the new size, and nothing is left of the old one.
        lines = page.text().splitlines()
        assert "no servers running" in lines[0]
        assert lines[0].startswith(" eaglemon")
        assert "q quit" in lines[-1]
        assert len(lines[0]) + 1 == len(lines[2]) == len(lines[-2])
        figures["bytes to the page, KiB/s"] = (len(page.drawn) - quiet) / QUIET_S / 1024

        await page.press("q")
        await page.until("document.body.classList.contains('-closed')")
        # Nothing was asked of another site, the library's font neither.
        assert [url for url in page.answered if not url.startswith((address, "data:"))] == []
    print()
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}")
