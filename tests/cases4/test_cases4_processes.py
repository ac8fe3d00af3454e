"""Processes that are hard to find or must not be hit: real ones, through the real agent."""

import ast
import asyncio
import contextlib
import getpass
import importlib.resources
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.holders import process_holds
from eaglemon.core.runs import RunStatus
from eaglemon.errors import LinkLostError
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from tests.agent.conftest import link, runs, state  # noqa: F401 -- fixtures
from tests.agent.driver import Runs, is_alive, linked, python, request, until

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
LIMIT_S = 60.0


def is_done(run: RunStatus) -> bool:
    return bool(run.stop and (run.stop.gone_at or run.stop.left))


async def test_a_worker_with_another_title_and_no_environment_is_found(
    link: AgentLink,  # noqa: F811
    runs: Runs,  # noqa: F811
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    worker = f"{DEAF}; open({str(mark)!r}, 'w').close(); time.sleep(600)"
    argv = ["VLLM::Worker_TP0", "-c", worker]
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    os.execve(sys.executable, {argv!r}, {{}})\n"
        "time.sleep(600)"
    )
    record = await link.start_run(request("one", *python(code)))
    await until(mark.exists)
    status = await runs.until("one", lambda run: len(run.processes) == 2)
    titled = next(p for p in status.processes if p.pid != record.pid)
    assert titled.command.startswith("VLLM::Worker_TP0")
    assert Path(f"/proc/{titled.pid}/environ").read_bytes() == b""
    # Nobody is left who could name it as a child; its output still goes to the run's log.
    os.kill(record.pid or 0, signal.SIGKILL)
    await link.stop_run("one", grace_s=0.2)
    stop = (await runs.until("one", is_done)).stop
    assert stop is not None
    assert stop.left == ()
    assert not is_alive(titled.pid)


def _namespace() -> list[str]:
    """Return the command that enters a PID namespace here; empty where the kernel refuses."""
    for options in (["--pid", "--fork"], ["--user", "--map-root-user", "--pid", "--fork"]):
        done = subprocess.run(["unshare", *options, "true"], capture_output=True, check=False)
        if done.returncode == 0:
            return ["unshare", *options]
    return []


async def test_a_server_in_another_pid_namespace_is_found_and_ended(
    link: AgentLink,  # noqa: F811
    runs: Runs,  # noqa: F811
    tmp_path: Path,
) -> None:
    enter = _namespace()
    if not enter:
        pytest.skip("the kernel lets nobody here make a PID namespace")
    mark = tmp_path / "mark"
    code = f"import os; {DEAF}; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    await link.start_run(request("one", *enter, *python(code)))
    await until(lambda: mark.exists() and mark.read_text() == "1")  # It is PID 1 in there.
    status = await runs.until("one", lambda run: len(run.processes) == 2)
    await link.stop_run("one", grace_s=0.3)
    stop = (await runs.until("one", is_done)).stop
    assert stop is not None
    assert stop.gone_at is not None
    assert not any(is_alive(process.pid) for process in status.processes)


async def test_what_docker_exec_started_is_ended_although_it_is_no_child(
    link: AgentLink,  # noqa: F811
    runs: Runs,  # noqa: F811
    tmp_path: Path,
) -> None:
    enter = _namespace()
    if not enter:
        pytest.skip("the kernel lets nobody here make a PID namespace")
    go, mark, secret = tmp_path / "go", tmp_path / "mark", "geheim"
    code = f"{DEAF}; open({str(mark)!r}, 'w').close(); time.sleep(600)"
    inner = [sys.executable, "-c", code, f"--api-key={secret}"]
    # As the daemon does: it is asked by a client, and the server is the daemon's child.
    waits = (
        "import os, subprocess, sys, time\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    )
    daemon = subprocess.Popen([sys.executable, "-c", waits, *enter, *inner], start_new_session=True)
    client = tmp_path / "docker"
    client.write_text(
        f"#!/bin/sh\n[ $1 = exec ] || exit 1\ntouch {go}\nexec sleep 600\n", encoding="utf-8"
    )
    client.chmod(0o755)
    try:
        start = (str(client), "exec", "-e", "HF_TOKEN", "-w", "/w", "box")
        masked = replace(
            request("one", *start, *inner),
            argv_recorded=(*start, *inner[:-1], "--api-key=***"),
        )
        record = await link.start_run(masked)
        await until(mark.exists)
        await link.stop_run("one", grace_s=0.3)
        stop = (await runs.until("one", is_done)).stop
        assert stop is not None
        assert (stop.term_count, stop.left) == (1, ())
        assert not is_alive(record.pid or 0)
        await asyncio.to_thread(daemon.wait, LIMIT_S)
    finally:
        daemon.kill()
        await asyncio.to_thread(daemon.wait, LIMIT_S)


async def test_a_dead_process_and_one_in_the_kernel_are_told_with_their_parent(
    link: AgentLink,  # noqa: F811
    runs: Runs,  # noqa: F811
    tmp_path: Path,
) -> None:
    # The first thread ends and another stays: a zombie that still holds what it has.
    half_dead = (
        "import ctypes, os, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).syscall({'x86_64': 60}.get(os.uname().machine, 93), 0)  # SYS_exit\n"
    )
    # Who waits for vfork() waits in state D.
    source = tmp_path / "waits.c"
    source.write_text(
        "#include <unistd.h>\nint main(void) { if (!vfork()) { sleep(600); _exit(0); } }\n"
    )
    waits = str(tmp_path / "waits")
    subprocess.run(["gcc", "-o", waits, str(source)], check=True)
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {half_dead!r}])\n"
        f"subprocess.Popen([{waits!r}])\n"
        "time.sleep(600)"
    )
    record = await link.start_run(request("one", *python(code)))
    status = await runs.until(
        "one", lambda run: {process.state for process in run.processes} >= {"Z", "D"}
    )
    for letter, words in (("Z", f"kill {record.pid}"), ("D", "state D")):
        one = next(p for p in status.processes if p.state == letter)
        assert (one.parent, one.user) == (record.pid, getpass.getuser())
        assert words in process_holds(one, user=getpass.getuser())
    await link.stop_run("one", grace_s=0.2)
    stop = (await runs.until("one", is_done)).stop
    assert stop is not None
    assert stop.left == ()


async def tell(link: AgentLink, job: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: F811
    return [dict(item) async for item in link.run_program(_program(), input=job)]


def _program() -> bytes:
    return importlib.resources.files("eaglemon.agent").joinpath("foreign.py").read_bytes()


@pytest.fixture
async def by_hand(tmp_path: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A server-like process with a deaf worker in a session of its own."""
    mark = tmp_path / "deaf"
    worker = f"import os; {DEAF}; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {worker!r}], start_new_session=True)\n"
        "time.sleep(600)"
    )
    # The word is this one's alone: other tests look at the same processes at the same time.
    process = subprocess.Popen(
        [sys.executable, "-c", code, f"word-{uuid.uuid4().hex}", "serve"], start_new_session=True
    )
    await until(lambda: mark.exists() and mark.read_text() != "")
    yield process
    if process.poll() is None:
        process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(mark.read_text()), signal.SIGKILL)
    await asyncio.to_thread(process.wait, LIMIT_S)


def word_of(process: subprocess.Popen[bytes]) -> str:
    return str(process.args[-2])  # type: ignore[index]


async def test_what_was_started_by_hand_is_found_with_its_family(
    link: AgentLink,  # noqa: F811
    by_hand: subprocess.Popen[bytes],
) -> None:
    (found,) = await tell(link, {"do": "find", "words": [word_of(by_hand)]})
    assert found["pid"] == by_hand.pid
    assert found["argv"][-2:] == [word_of(by_hand), "serve"]
    assert len(found["members"]) == 2
    assert abs(found["started_at"] - time.time()) < 60
    assert await tell(link, {"do": "find", "words": ["no-such-word-anywhere"]}) == []


async def test_a_pid_that_is_another_process_by_now_is_not_signalled(
    link: AgentLink,  # noqa: F811
    by_hand: subprocess.Popen[bytes],
) -> None:
    (found,) = await tell(link, {"do": "find", "words": [word_of(by_hand)]})
    job = {"do": "stop", "pid": by_hand.pid, "grace_s": 0.2}
    other = await tell(link, {**job, "start_ticks": found["start_ticks"] + 1})
    assert other == [{"step": "gone", "left": []}]
    assert by_hand.poll() is None

    waiting = asyncio.create_task(asyncio.to_thread(by_hand.wait, LIMIT_S))
    steps = await tell(link, {**job, "start_ticks": found["start_ticks"]})
    assert [step["step"] for step in steps] == ["term", "kill", "gone"]
    assert [step["count"] for step in steps[:2]] == [2, 1]
    await waiting
    assert not any(is_alive(pid) for pid in found["members"])


@pytest.mark.parametrize("how", ["closed", "agent killed"])
async def test_a_link_that_drops_leaves_no_foreign_stop_half_done(
    how: str,
    by_hand: subprocess.Popen[bytes],
    state: Path,  # noqa: F811
) -> None:
    async with linked(LocalTransport(), state) as one, asyncio.timeout(LIMIT_S):
        (found,) = await tell(one, {"do": "find", "words": [word_of(by_hand)]})
        job = {key: found[key] for key in ("pid", "start_ticks")}
        items = one.run_program(_program(), input={"do": "stop", "grace_s": 4.0, **job})
        assert (await anext(items))["step"] == "term"
        # Between TERM and KILL: the worker is deaf to the one and must not outlive the other.
        if how == "closed":
            await one.close()
        else:
            os.kill(await _agent_of(one), signal.SIGKILL)
        with pytest.raises(LinkLostError):
            await anext(items)
    assert any(is_alive(pid) for pid in found["members"])
    waiting = asyncio.create_task(asyncio.to_thread(by_hand.wait, LIMIT_S))
    await until(lambda: not any(is_alive(pid) for pid in found["members"]))
    await waiting


async def _agent_of(link: AgentLink) -> int:  # noqa: F811
    source = b"import json, os; print(json.dumps({'agent': os.getppid()}))"
    items = [item async for item in link.run_program(source)]
    return int(str(items[0]["agent"]))


def test_the_program_parses_as_an_old_python() -> None:
    source = importlib.resources.files("eaglemon.agent").joinpath("foreign.py").read_text("utf-8")
    ast.parse(source, feature_version=(3, 8))
