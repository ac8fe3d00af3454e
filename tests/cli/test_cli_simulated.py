"""Whole commands as processes against the simulated host: real SSH, agent, servers and signals."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.sim.host import SimHost
from tests.ports import free_port

LIMIT_S = 90.0


@pytest.fixture
async def sim() -> AsyncIterator[HostSpec]:
    async with SimHost(speed=12.0) as spec:
        yield spec


@pytest.fixture
def config(sim: HostSpec, tmp_path: Path) -> Path:
    keys = {"address": sim.address, "known_hosts": sim.known_hosts, "identity": sim.identity}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    if sim.user:
        lines.append(f"user = {json.dumps(sim.user)}")
    text = "\n".join(["[hosts.gpu-a]", *lines, f"port = {sim.port}", 'ssh_config = ""'])
    path = tmp_path / "over.toml"
    path.write_text(text, encoding="utf-8")
    return path


async def eaglemon(*arguments: str, home: Path, code: int = 0) -> tuple[str, str]:
    """Run one command to its end and return what it wrote; it must exit with ``code``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "eaglemon",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)},
    )
    async with asyncio.timeout(LIMIT_S):
        out, err = await process.communicate()
    assert process.returncode == code, err.decode()
    return out.decode(), err.decode()


async def sure(*arguments: str, home: Path) -> tuple[str, str]:
    """As ``eaglemon``, once the console knows the server to be ready.

    One that has not answered a busy machine for four seconds counts as starting to a new console.
    """
    for _ in range(10):
        try:
            return await eaglemon(*arguments, home=home)
        except AssertionError as error:
            if "is starting" not in str(error):
                raise
    return await eaglemon(*arguments, home=home)


async def document(*arguments: str, home: Path, code: int = 0) -> dict[str, Any]:
    out, _ = await eaglemon(*arguments, "--json", home=home, code=code)
    parsed: dict[str, Any] = json.loads(out)
    return parsed


async def test_a_server_from_launch_to_kill(config: Path, tmp_path: Path) -> None:
    base = ("--config", str(config))
    # The simulated host shares this computer's loopback, and other tests may run beside this one.
    port = str(free_port())
    launch = ("launch", "sglang-eagle3", "--host", "gpu-a", "--set", f"port={port}")
    out, err = await eaglemon(*base, *launch, "--wait", home=tmp_path)
    server_id = out.strip()
    for phase in ("import", "target", "draft", "KV cache", "graphs", "warm-up"):
        assert f"{phase}: done in" in err
    status = await document(*base, "status", "gpu-a", home=tmp_path)
    # To a console that asks a busy machine it may still be starting.
    assert [server["state"] for server in status["servers"]] in (["ready"], ["starting"])
    assert status["hosts"][0]["sample"]["gpus"][0]["memory_used_bytes"] > 10 * 1024**3

    refused = await document(*base, *launch, home=tmp_path, code=2)
    assert port in refused["error"]["message"]

    on_host = ("--host", "gpu-a")
    asked = ("probe", "sglang-eagle3", *on_host, "--requests", "4", "--json")
    probe = json.loads((await sure(*base, *asked, home=tmp_path))[0])
    assert probe["probe"]["figures"]["ok"] == 4
    assert 1.0 < probe["probe"]["figures"]["accept_length"] <= 6.0
    logs = await document(*base, "logs", server_id, *on_host, "-n", "3", home=tmp_path)
    assert len(logs["lines"]) == 3

    following = asyncio.create_task(
        eaglemon(*base, "logs", server_id, *on_host, "-f", home=tmp_path)
    )
    killed = await document(*base, "kill", server_id, *on_host, home=tmp_path)
    assert killed["server"]["stop"]["proven"] is True
    assert killed["server"]["pids"] == []
    followed, _ = await following
    assert "server_args=" in followed
    ended = await document(*base, "wait", server_id, *on_host, home=tmp_path, code=1)
    assert ended["server"]["state"] == "stopped"


async def test_a_refused_connection_exits_3_with_one_line(config: Path, tmp_path: Path) -> None:
    text = config.read_text(encoding="utf-8")
    lines = [line if not line.startswith("port") else "port = 1" for line in text.splitlines()]
    config.write_text("\n".join(lines), encoding="utf-8")
    _, err = await eaglemon("--config", str(config), "status", "gpu-a", home=tmp_path, code=3)
    assert len(err.splitlines()) == 1
    assert "gpu-a" in err
    assert "refused" in err


async def test_an_unknown_host_key_exits_3_and_names_the_fix(config: Path, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    text = config.read_text(encoding="utf-8")
    lines = [
        f"known_hosts = {json.dumps(str(empty))}" if line.startswith("known_hosts") else line
        for line in text.splitlines()
    ]
    config.write_text("\n".join(lines), encoding="utf-8")
    _, err = await eaglemon("--config", str(config), "status", "gpu-a", home=tmp_path, code=3)
    assert len(err.splitlines()) == 1
    assert "ssh-keyscan" in err or "ssh " in err


async def test_the_demo_holds_in_every_step(tmp_path: Path) -> None:
    demo = await document("demo", "--headless", home=tmp_path)
    assert demo["ok"] is True
    names = [step["name"] for step in demo["steps"]]
    assert names == ["gpus", "launch", "ready", "probe", "kill", "memory-back"]
    assert all(step["took_s"] >= 0 for step in demo["steps"])
