"""A console that is killed by SIGKILL in the middle of any step, and two consoles at once."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.core.views import ServerState
from eaglemon.sim.host import SimHost
from tests.cases4.conftest import LIMIT_S, console
from tests.ports import free_port

SPEED = 8.0


def config_of(spec: HostSpec, folder: Path) -> Path:
    keys = {"address": spec.address, "known_hosts": spec.known_hosts, "identity": spec.identity}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    lines += [f"user = {json.dumps(spec.user)}", f"port = {spec.port}", 'ssh_config = ""']
    path = folder / "over.toml"
    path.write_text("\n".join([f"[hosts.{spec.name}]", *lines]), encoding="utf-8")
    return path


async def killed_at(text: str, *arguments: str, config: Path) -> None:
    """Run one command, and kill its process as soon as it has said ``text`` on stderr."""
    home = str(config.parent)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "eaglemon", "--config", str(config), *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home},
    )
    assert process.stderr is not None
    said = ""
    async with asyncio.timeout(LIMIT_S), aclosing(_lines(process.stderr)) as lines:
        async for line in lines:
            said += line
            if text in line:
                break
    assert text in said, f"it ended with {process.returncode}: {said}"
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    # The last of the steps may be its last word: then there is nothing left to break off.
    assert await process.wait() in {-signal.SIGKILL, 0}


async def _lines(stream: asyncio.StreamReader) -> AsyncGenerator[str, None]:
    while line := await stream.readline():
        yield line.decode()


@pytest.mark.parametrize("step", ["started ", "import: done", "target: done", "graphs: "])
async def test_killed_while_a_server_starts(step: str, tmp_path: Path) -> None:
    async with SimHost(speed=SPEED) as spec:
        config = config_of(spec, tmp_path)
        port = str(free_port())
        launch = ("launch", "sglang-eagle3", "--host", spec.name, "--set", f"port={port}")
        await killed_at(step, *launch, "--wait", config=config)
        async with console(spec) as hub:
            await hub.settle()
            (server,) = hub.snapshot().servers
            view = await hub.wait(server.id, timeout_s=LIMIT_S)
            assert view.state is ServerState.READY
            stopped = await hub.stop(server.id, grace_s=2.0)
            assert stopped.stop is not None
            assert stopped.stop.proven


@pytest.mark.parametrize("step", ["TERM sent", "killed after", "all processes gone"])
async def test_killed_while_a_server_stops(step: str, tmp_path: Path) -> None:
    fault = {"EAGLEMON_SIM_FAULT": "ignore-term"} if step == "killed after" else {}
    async with SimHost(speed=SPEED if fault else 1.5, env=fault) as spec:
        config = config_of(spec, tmp_path)
        async with console(spec) as hub:
            await hub.settle()
            plan = hub.plan("sglang-baseline", spec.name, {"port": str(free_port())})
            server = await hub.launch(plan)
            if fault:
                await hub.wait(server, timeout_s=LIMIT_S)
        grace = "1s" if fault else "20s"
        await killed_at(step, "kill", server, "--host", spec.name, "--grace", grace, config=config)
        async with console(spec) as hub:
            await hub.settle()
            async with asyncio.timeout(LIMIT_S):
                while not hub.find(server).state.ended:
                    await asyncio.sleep(0.05)
            view = hub.find(server)
            assert view.state is ServerState.STOPPED
            assert view.pids == ()


async def test_killed_before_anything_was_started_leaves_nothing(tmp_path: Path) -> None:
    async with SimHost(speed=SPEED) as spec:
        config = config_of(spec, tmp_path)
        hooks = tmp_path / "hooks.toml"
        text = config.read_text(encoding="utf-8")
        text += '\n[profiles.slow]\nextends = "sglang-baseline"\n[profiles.slow.hooks]\n'
        mark = tmp_path / "begun"
        hooks.write_text(text + f'before_launch = ["touch {mark}; sleep 60"]\n', encoding="utf-8")
        home = str(tmp_path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "eaglemon", "--config", str(hooks)),
            *("launch", "slow", "--host", spec.name, "--set", f"port={free_port()}"),
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home},
        )
        async with asyncio.timeout(LIMIT_S):
            while not mark.exists():
                await asyncio.sleep(0.05)
        process.kill()
        await process.wait()
        async with console(spec) as hub:
            snapshot = await hub.settle()
            assert snapshot.servers == ()


async def test_two_consoles_stop_one_server_and_agree() -> None:
    async with SimHost(speed=SPEED) as spec, console(spec) as first, console(spec) as second:
        await first.settle()
        await second.settle()
        plan = first.plan("sglang-eagle3", spec.name, {"port": str(free_port())})
        server = await first.launch(plan)
        async with asyncio.timeout(LIMIT_S):
            while second.snapshot().server(server) is None:
                await asyncio.sleep(0.05)
        views = await asyncio.gather(
            first.wait(server, timeout_s=LIMIT_S), second.wait(server, timeout_s=LIMIT_S)
        )
        assert [view.state for view in views] == [ServerState.READY] * 2
        stops = await asyncio.gather(
            first.stop(server, grace_s=3.0), second.stop(server, grace_s=3.0)
        )
        assert [view.state for view in stops] == [ServerState.STOPPED] * 2
        assert all(view.stop is not None and view.stop.proven for view in stops)
        one, other = (view.stop for view in stops)
        assert one is not None
        assert other is not None
        assert one.steps[0] == other.steps[0]


async def test_two_consoles_cannot_start_two_servers_on_one_port() -> None:
    async with SimHost(speed=SPEED) as spec, console(spec) as first, console(spec) as second:
        await first.settle()
        await second.settle()
        settings = {"port": str(free_port())}
        server = await first.launch(first.plan("sglang-eagle3", spec.name, settings))
        async with asyncio.timeout(LIMIT_S):
            while second.snapshot().server(server) is None:
                await asyncio.sleep(0.05)
        problems = await second.check(second.plan("sglang-eagle3", spec.name, settings))
        assert {"port-in-use", "gpu-in-use"} <= {problem.slug for problem in problems}
        await first.stop(server, grace_s=1.0)
