"""Launching: real processes through the real agent over the local transport."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.runs import RunExit
from eaglemon.errors import AgentError, LinkLostError
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import Runs, is_alive, linked, python, request, until, watched

FOREVER = python("import time; print('up', flush=True); time.sleep(600)")


def folder(state: Path, run_id: str) -> Path:
    return state / "eaglemon" / "runs" / run_id


async def test_a_started_run_is_told_with_its_processes(
    link: AgentLink, runs: Runs, state: Path
) -> None:
    record = await link.start_run(request("one", *FOREVER, extra={"by": "test"}))
    assert record.pid is not None
    assert is_alive(record.pid)
    assert record.extra == {"by": "test"}
    assert os.getsid(record.pid) == record.pid == os.getpgid(record.pid)
    status = await runs.until("one", lambda run: bool(run.processes and run.record.pid))
    assert [process.pid for process in status.processes] == [record.pid]
    assert status.record == record
    assert status.exit is None
    assert status.stop is None
    status = await runs.until("one", lambda run: bool(run.activity and run.activity.log_bytes))
    assert Path(record.log_path).read_text() == "up\n"
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder(state, "one").iterdir()}
    assert modes == {"run.json": 0o600, "server.log": 0o600}
    assert folder(state, "one").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(3)", (3, None)),
        ("pass", (0, None)),
        ("import os; os.kill(os.getpid(), 9)", (None, "SIGKILL")),
        ("import os; os.abort()", (None, "SIGABRT")),
    ],
)
async def test_an_exit_is_recorded(
    link: AgentLink, runs: Runs, code: str, expected: tuple[int | None, str | None]
) -> None:
    await link.start_run(request("one", *python(code)))
    status = await runs.until("one", lambda run: run.exit is not None)
    assert status.exit is not None
    assert (status.exit.code, status.exit.signal) == expected
    assert status.exit.reason is None
    assert status.exit.at is not None


async def test_the_kill_of_a_running_server_is_noticed(link: AgentLink, runs: Runs) -> None:
    record = await link.start_run(request("one", *FOREVER))
    await runs.until("one", lambda run: bool(run.processes))
    assert record.pid is not None
    os.kill(record.pid, signal.SIGKILL)
    status = await runs.until("one", lambda run: run.exit is not None)
    assert status.exit is not None
    assert status.exit.signal == "SIGKILL"


async def test_an_unknown_program_is_named(link: AgentLink, runs: Runs) -> None:
    with pytest.raises(AgentError, match="no-such-program: No such file") as caught:
        await link.start_run(request("one", "no-such-program"))
    assert caught.value.kind == "spawn-failed"
    status = await runs.until("one", lambda run: bool(run.record.spawn_error))
    assert status.record.pid is None


async def test_a_missing_working_folder_is_named(link: AgentLink, tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"working folder .*absent"):
        await link.start_run(request("one", *FOREVER, workdir=str(tmp_path / "absent")))


async def test_a_run_exists_only_once(link: AgentLink) -> None:
    await link.start_run(request("one", *FOREVER))
    with pytest.raises(AgentError) as caught:
        await link.start_run(request("one", *FOREVER))
    assert caught.value.kind == "run-exists"


@pytest.mark.parametrize("run_id", ["", "..", "a/b", ".hidden", "a b", "a" * 200])
async def test_an_id_is_a_plain_name(link: AgentLink, run_id: str) -> None:
    with pytest.raises(AgentError) as caught:
        await link.start_run(request(run_id, *FOREVER))
    assert caught.value.kind == "bad-request"
    with pytest.raises(AgentError) as caught:
        await link.stop_run(run_id, grace_s=1.0)
    assert caught.value.kind == "no-such-run"


async def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    # A file where the folder should be: refused to root as well.
    (tmp_path / "file").touch()
    async with linked(LocalTransport(), tmp_path / "file") as link:
        with pytest.raises(AgentError, match="file/eaglemon/runs") as caught:
            await link.start_run(request("one", *FOREVER))
        assert caught.value.kind == "state-not-writable"
        await link.ping()


async def test_a_home_that_cannot_be_written_is_replaced_by_a_named_place() -> None:
    env = {"HOME": "/dev/null/home", "XDG_STATE_HOME": ""}
    place = f"/var/tmp/eaglemon-{os.getuid()}"
    link = await AgentLink.open(LocalTransport(), env=env)
    try:
        assert link.facts.state_dir == place
        assert link.facts.state_note is not None
        assert f"run records are in {place}" in link.facts.state_note
        run_id = f"one-{os.getpid()}"
        record = await link.start_run(request(run_id, *python("print('there')")))
        assert record.log_path == f"{place}/runs/{run_id}/server.log"
        async with watched(link) as runs:
            await runs.until(run_id, lambda run: run.exit is not None)
        await link.forget_run(run_id)
    finally:
        await link.close()


async def test_secrets_reach_the_process_and_no_file(link: AgentLink, state: Path) -> None:
    code = "import os, sys, time; print(os.environ['TOKEN'] == 's3cret'); time.sleep(600)"
    await link.start_run(
        request(
            "one",
            *python(code),
            env={"TOKEN": "s3cret", "PLAIN": "1", "PYTHONUNBUFFERED": "1"},
            env_recorded={"TOKEN": "***", "PLAIN": "1"},
            argv_recorded=("python", "***"),
        )
    )
    log = folder(state, "one") / "server.log"
    await until(lambda: log.read_bytes() != b"")
    assert log.read_text() == "True\n"
    record = json.loads((folder(state, "one") / "run.json").read_text())
    assert record["env"] == {"TOKEN": "***", "PLAIN": "1"}
    assert record["argv"] == ["python", "***"]
    for path in folder(state, "one").iterdir():
        assert "s3cret" not in path.read_text()


async def test_a_run_survives_its_link_and_is_adopted(
    link: AgentLink, state: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\nexit(7)"
    record = await link.start_run(request("one", *python(code)))
    await link.close()
    assert record.pid is not None
    assert is_alive(record.pid)
    async with linked(LocalTransport(), state) as other, watched(other) as runs:
        status = await runs.until("one", lambda run: bool(run.processes))
        assert status.record == record
        go.touch()
        status = await runs.until("one", lambda run: run.exit is not None)
        assert status.exit is not None
        assert status.exit.code == 7


async def test_a_link_killed_in_the_middle_of_a_launch_loses_nothing(state: Path) -> None:
    for number in range(5):
        run_id = f"run-{number}"
        async with linked(LocalTransport(), state) as link:
            start = asyncio.create_task(link.start_run(request(run_id, *FOREVER)))
            await until((folder(state, run_id) / "run.json").exists)
            await asyncio.sleep(0.01 * number)
            await link.close()
            with contextlib.suppress(LinkLostError):
                await start
    async with linked(LocalTransport(), state) as link, watched(link) as runs:
        for number in range(5):
            status = await runs.until(f"run-{number}", lambda run: bool(run.processes))
            assert len(status.processes) == 1
            assert status.exit is None


def test_an_agent_does_not_end_between_a_record_and_its_supervisor() -> None:
    code = (
        "import threading\n"
        "from eaglemon.agent import agent\n"
        "agent.HALF_DONE_LIMIT_S = 60.0\n"
        "agent.HALF_DONE.acquire()\n"
        "def go_on():\n"
        "    print('supervisor started', flush=True)\n"
        "    agent.HALF_DONE.release()\n"
        "threading.Timer(0.2, go_on).start()\n"
        "agent.leave()"
    )
    done = subprocess.run(python(code), capture_output=True, text=True, check=True)
    assert done.stdout == "supervisor started\n"


async def test_a_run_without_supervisor_says_so(link: AgentLink, runs: Runs, state: Path) -> None:
    record = await link.start_run(request("one", *FOREVER))
    await runs.until("one", lambda run: bool(run.processes))
    supervisor = json.loads((folder(state, "one") / "run.json").read_text())["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGKILL)
    assert record.pid is not None
    assert is_alive(record.pid)
    os.kill(record.pid, signal.SIGTERM)
    status = await runs.until("one", lambda run: run.exit is not None)
    assert status.exit is not None
    assert (status.exit.code, status.exit.reason) == (None, "supervisor gone")
    assert status.exit.at is not None
    async with linked(LocalTransport(), state) as other, watched(other) as again:
        status = await again.until("one", lambda run: run.exit is not None)
        assert status.exit == RunExit(reason="supervisor gone")


async def test_a_run_of_another_boot_has_ended(state: Path) -> None:
    place = folder(state, "old")
    place.mkdir(parents=True)
    async with linked(LocalTransport(), state) as link, watched(link) as runs:
        record = await link.start_run(request("new", *FOREVER))
        values = json.loads((folder(state, "new") / "run.json").read_text())
        # The same pid and ticks on purpose: only the boot id tells them apart.
        (place / "run.json").write_text(json.dumps({**values, "id": "old", "boot_id": "before"}))
        status = await runs.until("old", lambda run: run.exit is not None)
        assert status.exit == RunExit(reason="host rebooted")
        assert status.processes == ()
        await link.stop_run("old", grace_s=0.0)
        await runs.until("old", lambda run: bool(run.stop and run.stop.gone_at))
        assert record.pid is not None
        assert is_alive(record.pid)


async def test_a_damaged_record_does_not_hide_the_others(state: Path) -> None:
    folder(state, "bad").mkdir(parents=True)
    (folder(state, "bad") / "run.json").write_text('{"id": "bad", "port": "x"}')
    (folder(state, "worse")).mkdir()
    (folder(state, "worse") / "run.json").write_text("{")
    async with linked(LocalTransport(), state) as link, watched(link) as runs:
        await link.start_run(request("good", *FOREVER))
        await runs.until("good", lambda run: bool(run.processes))
        assert set(runs.known) == {"good"}


async def test_only_an_ended_run_is_forgotten(link: AgentLink, runs: Runs, state: Path) -> None:
    record = await link.start_run(request("one", *FOREVER))
    with pytest.raises(AgentError) as caught:
        await link.forget_run("one")
    assert caught.value.kind == "still-running"
    assert record.pid is not None
    os.kill(record.pid, signal.SIGKILL)
    await runs.until("one", lambda run: run.exit is not None and not run.processes)

    async def forgotten() -> bool:
        try:
            await link.forget_run("one")
        except AgentError:
            return False
        return True

    async with asyncio.timeout(60):
        while not await forgotten():
            await asyncio.sleep(0.05)
    assert not folder(state, "one").exists()
    await runs.until_forgotten("one")


async def test_activity_grows_and_outlives_workers(link: AgentLink, runs: Runs) -> None:
    code = (
        "import subprocess, sys, time\n"
        "busy = 'import time\\nend = time.process_time() + 0.5\\n"
        "while time.process_time() < end: pass\\ntime.sleep(3)'\n"
        "subprocess.run([sys.executable, '-c', busy])\n"
        "time.sleep(600)"
    )
    await link.start_run(request("one", *python(code)))
    await runs.until("one", lambda run: len(run.processes) == 2)
    await runs.until("one", lambda run: bool(run.activity and run.activity.cpu_s >= 0.4))
    status = await runs.until("one", lambda run: len(run.processes) == 1)
    assert status.activity is not None
    assert status.activity.cpu_s >= 0.4
    assert status.activity.read_bytes is not None
    assert status.activity.read_bytes > 0


FULL = """
import sys
from eaglemon.agent import agent
write, failing = agent.write_json, [int(number) for number in sys.argv[1:]]
seen = {}

def full(path, value):
    seen[path] = seen.get(path, 0) + 1
    if path.endswith("run.json") and seen[path] in failing:
        raise OSError(28, "No space left on device")
    write(path, value)

agent.write_json = full
agent.supervise()
"""


async def supervised(folder: Path, *failing: int) -> dict[str, Any]:
    """Return the answer of a supervisor to whom some writes of ``run.json`` fail."""
    job = {
        "folder": str(folder),
        "record": {"id": "one", "argv": ["true"], "workdir": "/"},
        "argv": ["true"],
        "env": {},
    }
    process = await asyncio.create_subprocess_exec(
        *python(FULL), *map(str, failing), stdin=-1, stdout=-1, stderr=-1
    )
    async with asyncio.timeout(60.0):
        said, complaints = await process.communicate(json.dumps(job).encode())
    assert complaints == b""
    answer: dict[str, Any] = json.loads(said)
    return answer


async def test_a_disk_that_is_full_after_the_start_loses_neither_process_nor_end(
    tmp_path: Path,
) -> None:
    answer = await supervised(tmp_path, 2, 3)
    recorded = json.loads((tmp_path / "run.json").read_text())
    assert recorded["pid"] == answer["record"]["pid"]
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == 0


async def test_a_disk_that_is_full_before_the_start_is_told(tmp_path: Path) -> None:
    assert await supervised(tmp_path, 1) == {
        "error": f"cannot write {tmp_path}/run.json: No space left on device"
    }
    assert not (tmp_path / "server.log").exists()
