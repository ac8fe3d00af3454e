"""The commands: what they refuse and say beforehand, and a console that is really killed."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.core.problems import Problem
from eaglemon.sim.host import SimHost
from tests.cli.conftest import CommandLine, home, run
from tests.experiments.simulated import LIMIT_S
from tests.ports import free_port

__all__ = ["home", "run"]


def test_ab_refuses_what_cannot_be_compared(run: CommandLine) -> None:
    one = run("ab", "sglang-eagle3", "--host", "gpu-a")
    assert one.code == 2
    assert "add --baseline" in one.err
    unknown = run("ab", "sglang-eagle3", "sglang-eagle4", "--host", "gpu-a")
    assert unknown.code == 2
    assert "sglang-eagle" in unknown.err
    change = run("ab", "sglang-eagle3", "sglang-eagle3+steps", "--host", "gpu-a")
    assert "write PROFILE+KEY=VALUE" in change.err
    report = run("ab", "sglang-baseline", "sglang-eagle3", "--host", "gpu-a", "-o", "r.pdf")
    assert report.code == 2


def test_ab_says_beforehand_what_it_will_do(run: CommandLine) -> None:
    told = run(
        *("ab", "sglang-baseline", "sglang-eagle3+steps=3+draft-tokens=4"),
        *("--host", "gpu-a", "--dry-run", "--json"),
    )
    assert told.code == 0, told.err
    assert "    speculation.steps: - -> 3" in told.err
    assert "4 measurements of 16 prompts, 3 server starts" in told.err
    assert told.document["outlook"]["starts"] == 3
    assert not run.console.called("launch")


def test_arms_that_cannot_be_started_are_told_and_nothing_begins(run: CommandLine) -> None:
    missing = Problem(
        where="python3", message="sglang is not installed on gpu-a", hint="set python"
    )
    run.prepare = lambda console: console.problems.append(missing)
    told = run("ab", "sglang-baseline", "sglang-eagle3+steps=3", "--host", "gpu-a", "--yes")
    assert told.code == 2
    names = "sglang-baseline, sglang-eagle3+steps=3"
    assert f"CANNOT BE STARTED: {names}: {missing}" in told.err
    assert "fewer than two arms could be started" in told.err
    assert not run.console.called("stop")


def test_what_runs_is_not_stopped_unasked(run: CommandLine) -> None:
    # The fake console has a server on the port and the GPU of the packaged profiles.
    refused = run("ab", "sglang-baseline", "sglang-eagle3", "--host", "gpu-a")
    assert refused.code == 2
    assert "WILL BE STOPPED: sglang-eagle3-20261129-101500-ab12" in refused.err
    assert "confirm it with --yes" in refused.err
    assert not run.console.called("stop")


def test_sweep_refuses_what_is_no_list_of_numbers(run: CommandLine) -> None:
    told = run("sweep", "sglang-eagle3", "--host", "gpu-a", "--steps", "one")
    assert told.code == 2
    assert "write 1,3,5" in told.err
    assert run("sweep", "sglang-eagle3", "--host", "gpu-a", "--steps", "auto").code == 2


def test_an_empty_history_is_said(run: CommandLine) -> None:
    assert "no experiment was measured yet" in run("runs").err
    missing = run("runs", "show", "ab-1")
    assert missing.code == 1
    assert "no run 'ab-1'" in missing.err
    assert run("report").code == 1
    assert run("runs", "prune", "--json").document["forgotten"] == []
    assert "no experiment was cut off" in run("ab", "--resume", "--host", "gpu-a").err


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[Path]:
    async with SimHost(speed=15.0) as sim:
        yield _over(sim, tmp_path)


def _over(sim: HostSpec, folder: Path) -> Path:
    keys = {"address": sim.address, "known_hosts": sim.known_hosts, "identity": sim.identity}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    if sim.user:
        lines.append(f"user = {json.dumps(sim.user)}")
    path = folder / "over.toml"
    text = "\n".join(["[hosts.gpu-a]", *lines, f"port = {sim.port}", 'ssh_config = ""'])
    path.write_text(text, encoding="utf-8")
    return path


async def started(config: Path, *words: str) -> asyncio.subprocess.Process:
    folder = str(config.parent)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eaglemon", "--config", str(config), *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_CONFIG_HOME": folder, "XDG_STATE_HOME": folder},
    )


async def document(config: Path, *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    process = await started(config, *words, "--json")
    async with asyncio.timeout(LIMIT_S):
        out, err = await process.communicate()
    assert process.returncode == code, err.decode()
    parsed: dict[str, Any] = json.loads(out)
    return parsed, err.decode()


async def until_said(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stderr is not None
    said = ""
    async with asyncio.timeout(LIMIT_S):
        while text not in said:
            line = await process.stderr.readline()
            assert line, f"it ended without saying {text!r}: {said}"
            said += line.decode()


async def living(config: Path) -> list[str]:
    status, _ = await document(config, "status", "gpu-a")
    return [one["id"] for one in status["servers"] if one["state"] not in {"stopped", "failed"}]


def _ask(port: int) -> tuple[str, ...]:
    return (
        *("--host", "gpu-a", "--set", f"port={port}", "--set", "limits.stop_grace_s=3", "--yes"),
        *("--set", "probe.warmup=1", "--requests", "8", "--max-tokens", "24"),
    )


@pytest.mark.parametrize("moment", ["starting sglang-eagle3+", "measuring sglang-eagle3+"])
async def test_a_killed_console_is_resumed(config: Path, moment: str) -> None:
    arms = ("ab", "sglang-baseline", "sglang-eagle3+steps=3+draft-tokens=4", "--concurrency", "4")
    process = await started(config, *arms, *_ask(free_port()))
    await until_said(process, moment)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert moment.startswith("starting") or await living(config)

    report = config.parent / "report.html"
    found, told = await document(config, "ab", "--resume", "--host", "gpu-a", "-o", str(report))
    assert "measuring sglang-baseline, round 1" not in told
    assert found["outcome"] == "done"
    assert "sglang-eagle3" in found["verdicts"][0]
    # Which is faster is no question here: a busy computer may say either.
    assert "over 8 prompts" in found["verdicts"][0]
    assert "<svg" in report.read_text(encoding="utf-8")
    assert await living(config) == []
    runs, _ = await document(config, "runs", "list")
    assert runs["runs"][0]["trials"] == 4


async def test_interrupting_stops_what_was_started(config: Path) -> None:
    arms = ("ab", "sglang-baseline", "sglang-eagle3", "--concurrency", "4")
    process = await started(config, *arms, *_ask(free_port()))
    await until_said(process, "measuring sglang-baseline")
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(LIMIT_S):
        _, err = await process.communicate()
    assert process.returncode == 130, err.decode()
    assert "the servers that it started were stopped" in err.decode()
    assert await living(config) == []


async def test_interrupting_twice_stops_them_all_the_same(config: Path) -> None:
    arms = ("ab", "sglang-baseline", "sglang-eagle3", *_ask(free_port()))
    # Its processes end when this test says so.
    stubborn = ("--set", "env.EAGLEMON_SIM_FAULT=ignore-term", "--set", "limits.stop_grace_s=120")
    process = await started(config, *arms, *stubborn)
    await until_said(process, "measuring sglang-baseline")
    status, _ = await document(config, "status", "gpu-a")
    (server,) = [one for one in status["servers"] if one["state"] not in {"stopped", "failed"}]
    process.send_signal(signal.SIGINT)
    await until_said(process, "stopping the servers of the experiment")
    process.send_signal(signal.SIGINT)
    words = f"still stopping 1 server: {server['id']}; Ctrl-C once more to leave them"
    await until_said(process, words)
    for pid in server["pids"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(LIMIT_S):
        _, err = await process.communicate()
    assert process.returncode == 130, err.decode()
    assert "the servers that it started were stopped" in err.decode()
    assert await living(config) == []


async def test_a_sweep_names_the_best_of_each_concurrency(config: Path) -> None:
    found, told = await document(
        config,
        *("sweep", "sglang-eagle3", "--steps", "1,5", "--draft-tokens", "2,6"),
        *("--concurrency", "2,8", "--rounds", "1"),
        *_ask(free_port()),
    )
    assert "6 measurements of 8 prompts, 3 server starts" in told
    assert "skipped steps=1: a chain of 1 verifies 2 tokens, whatever is asked" in told
    best = [line for line in found["verdicts"] if "at a time the best is" in line]
    assert len(best) == 2
    # An arm may be given up by what this computer measured; none has failed.
    assert (found["outcome"], found["failures"]) == ("done", {})
