"""Two consoles that launch at the same moment: the host lets one of them have the port."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eaglemon.errors import EXIT_OK, EXIT_USAGE, AgentError
from eaglemon.io.host_link import HostLink
from eaglemon.io.local import LocalTransport
from eaglemon.sim.host import SimHost
from tests.agent.driver import kill_all_of, linked, python, request, until
from tests.hosts3.shell_host import shell_link
from tests.ports import free_port

FOREVER = python("import time; time.sleep(600)")


async def launch(config: Path, home: Path, port: int) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eaglemon", "--config", str(config)),
        *("launch", "sglang-eagle3", "--host", "gpu-a", "--set", f"port={port}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)},
    )
    async with asyncio.timeout(90.0):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_of_two_launches_at_once_one_starts_and_the_other_says_why(tmp_path: Path) -> None:
    async with SimHost(speed=12.0) as spec:
        keys = {"address": spec.address, "known_hosts": spec.known_hosts, "identity": spec.identity}
        if spec.user:
            keys["user"] = spec.user
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        config = tmp_path / "hosts.toml"
        config.write_text(
            "\n".join(["[hosts.gpu-a]", *lines, f"port = {spec.port}", 'ssh_config = ""'])
        )
        port = free_port()
        homes = [tmp_path / "one", tmp_path / "two"]
        for home in homes:
            home.mkdir()
        done = await asyncio.gather(*(launch(config, home, port) for home in homes))
        assert sorted(code or 0 for code, _, _ in done) == [EXIT_OK, EXIT_USAGE], done
        (_, started, _), (_, nothing, why) = sorted(done)
        assert nothing == ""
        assert f"port {port}" in why
        assert started.strip() in why


@asynccontextmanager
async def two_consoles(kind: str, state: Path) -> AsyncIterator[tuple[HostLink, HostLink]]:
    if kind == "sh":
        async with shell_link(state) as sh, shell_link(state) as other_sh:
            yield sh, other_sh
    else:
        one, two = linked(LocalTransport(), state), linked(LocalTransport(), state)
        async with one as link, two as other:
            yield link, other


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    kill_all_of(tmp_path)


@pytest.mark.parametrize("kind", ["python", "sh"])
async def test_the_host_starts_one_of_many(state: Path, kind: str) -> None:
    async with two_consoles(kind, state) as links:
        starts = [
            link.start_run(request(f"run-{side}{n}", *FOREVER, known_runs=()))
            for n in range(3)
            for side, link in zip("ab", links, strict=True)
        ]
        done = await asyncio.gather(*starts, return_exceptions=True)
        records = [one for one in done if not isinstance(one, BaseException)]
        errors = [one for one in done if isinstance(one, AgentError)]
        assert (len(records), len(errors)) == (1, 5), done
        assert {error.kind for error in errors} == {"port-in-use"}
        assert {error.exit_code for error in errors} == {EXIT_USAGE}
        assert str(errors[0]) == (
            f"port 30000 was just taken by {records[0].id}, which was launched at the same time; "
            "stop it first, or choose another port with --set port=N"
        )
        assert os.listdir(state / "eaglemon" / "runs") == [records[0].id]  # noqa: PTH208


@pytest.mark.parametrize("kind", ["python", "sh"])
async def test_what_a_launch_may_share_with_another(state: Path, kind: str) -> None:
    async with two_consoles(kind, state) as (link, other):
        await link.start_run(request("one", *FOREVER, gpu_indexes=(0, 1), known_runs=()))
        there = {"port": 30001, "gpu_indexes": (1, 2)}
        with pytest.raises(AgentError, match="GPU 1 was just taken by one") as caught:
            await other.start_run(request("two", *FOREVER, **there, known_runs=()))
        assert caught.value.kind == "gpu-in-use"
        # Other GPUs, GPUs that a person wants to share, and a run that the check has judged.
        await other.start_run(
            request("two", *FOREVER, port=30001, gpu_indexes=(2, 11), known_runs=())
        )
        await other.start_run(
            request("three", *FOREVER, port=30002, gpu_indexes=(1,), known_runs=(), force=True)
        )
        await other.start_run(
            request("four", *FOREVER, gpu_indexes=(0,), known_runs=("one", "two", "three"))
        )
        # --force is for GPUs: a second server cannot have the port.
        with pytest.raises(AgentError, match="port 30002 was just taken by three"):
            await link.start_run(request("five", *FOREVER, port=30002, known_runs=(), force=True))


@pytest.mark.parametrize("kind", ["python", "sh"])
async def test_an_ended_run_holds_nothing(state: Path, kind: str) -> None:
    async with two_consoles(kind, state) as (link, other):
        await link.start_run(request("one", *python("pass"), known_runs=()))
        await until((state / "eaglemon" / "runs" / "one" / "exit.json").exists)
        await other.start_run(request("two", *FOREVER, known_runs=()))
