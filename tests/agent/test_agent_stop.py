"""Stopping: every process of a run is found and gone, and nothing else is touched."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eaglemon.agent import agent
from eaglemon.core.runs import RunStatus
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import Runs, is_alive, linked, python, request, until, watched

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def server(worker: str, *, popen: str = "", then: str = "time.sleep(600)") -> tuple[str, ...]:
    """Return a leader with one worker; the leader prints the worker's pid."""
    return python(
        "import subprocess, sys, time\n"
        f"worker = subprocess.Popen([sys.executable, '-c', {worker!r}]{popen})\n"
        "print(worker.pid, flush=True)\n"
        f"{then}"
    )


def worker_code(mark: Path, *, first: str = DEAF) -> str:
    """Return a worker's code: it makes ``mark`` once its signals are set."""
    return f"{first}\nimport time; open({str(mark)!r}, 'w').close(); time.sleep(600)"


async def started(link: AgentLink, mark: Path, *argv: str) -> tuple[int, int]:
    """Start a server and return the pids of leader and worker, both ready for signals."""
    record = await link.start_run(request("one", *argv))
    await until(mark.exists)
    await until(lambda: b"\n" in Path(record.log_path).read_bytes())
    assert record.pid is not None
    return record.pid, int(Path(record.log_path).read_text())


def is_done(run: RunStatus) -> bool:
    return bool(run.stop and (run.stop.gone_at or run.stop.left))


async def test_a_worker_that_ignores_term_is_killed_after_the_grace(
    link: AgentLink, runs: Runs, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    leader, worker = await started(link, mark, *server(worker_code(mark)))
    await link.stop_run("one", grace_s=0.6)
    status = await runs.until("one", is_done)
    stop = status.stop
    assert stop is not None
    assert stop.term_sent_at
    assert stop.kill_sent_at
    assert stop.gone_at
    assert (stop.term_count, stop.kill_count, stop.left) == (2, 1, ())
    assert stop.kill_sent_at - stop.term_sent_at > 0.5
    assert not is_alive(leader)
    assert not is_alive(worker)
    status = await runs.until("one", lambda run: run.exit is not None and not run.processes)
    assert status.exit is not None
    assert status.exit.signal == "SIGTERM"


async def test_a_run_that_obeys_is_gone_before_the_grace_ends(link: AgentLink, runs: Runs) -> None:
    await link.start_run(request("one", *python("import time; time.sleep(600)")))
    await link.stop_run("one", grace_s=60.0)
    stop = (await runs.until("one", is_done)).stop
    assert stop is not None
    assert stop.gone_at is not None
    assert stop.kill_sent_at is None
    assert stop.gone_at - stop.requested_at < 60.0


async def test_a_stop_is_looked_at_often_only_while_it_goes_on(
    link: AgentLink, state: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    await started(link, mark, *server(worker_code(mark), then=DEAF + "\ntime.sleep(600)"))
    seen = agent.Runs([str(state / "eaglemon" / "runs")], agent.read_boot_id())

    def stopping() -> bool:
        seen.refresh(0.0)
        return seen.stopping

    assert not stopping()
    await link.stop_run("one", grace_s=60.0)
    assert stopping()
    await link.stop_run("one", grace_s=0.0)
    await until(lambda: not stopping())
    account = state / "eaglemon" / "runs" / "one" / "stop.json"
    assert json.loads(account.read_text())["gone_at"]


def test_a_stop_whose_stopper_died_is_not_looked_at_for_ever(tmp_path: Path) -> None:
    run = agent.Run("one", str(tmp_path))
    run.stop = {"requested_at": time.time(), "grace_s": 600.0}
    assert run.is_stopping()
    run.stop["requested_at"] -= 1200.0
    assert not run.is_stopping()


async def test_a_worker_in_its_own_session_is_found(
    link: AgentLink, runs: Runs, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    argv = server(worker_code(mark), popen=", start_new_session=True")
    leader, worker = await started(link, mark, *argv)
    assert os.getsid(worker) != leader
    await link.stop_run("one", grace_s=0.2)
    await runs.until("one", is_done)
    assert not is_alive(leader)
    assert not is_alive(worker)


async def test_a_worker_whose_leader_died_is_found_through_the_supervisor(
    link: AgentLink, runs: Runs, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    # Own session and own output: only its parent, the supervisor, tells whose it is.
    quiet = ", start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
    leader, worker = await started(link, mark, *server(worker_code(mark), popen=quiet))
    os.kill(leader, signal.SIGKILL)
    status = await runs.until("one", lambda run: run.exit is not None)
    assert [process.pid for process in status.processes] == [worker]
    await link.stop_run("one", grace_s=0.2)
    stop = (await runs.until("one", is_done)).stop
    assert stop is not None
    assert stop.gone_at is not None
    assert not is_alive(worker)


async def test_orphans_of_a_run_without_supervisor_are_found_by_a_new_agent(
    state: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    # Renamed, with a blank environment and its own session: the log behind fd 1 and 2 is left.
    shell = "import os; os.execve('/bin/sh', ['VLLM::Worker_TP0', '-c', SCRIPT], {})"
    script = f"trap '' TERM; : > {mark}; while :; do sleep 1; done"
    worker = shell.replace("SCRIPT", repr(script))
    async with linked(LocalTransport(), state) as link:
        leader, pid = await started(link, mark, *server(worker, popen=", start_new_session=True"))
        record = json.loads((state / "eaglemon/runs/one/run.json").read_text())
    os.kill(record["supervisor"]["pid"], signal.SIGKILL)
    os.kill(leader, signal.SIGKILL)
    await until(lambda: not is_alive(leader))
    assert is_alive(pid)
    async with linked(LocalTransport(), state) as link, watched(link) as runs:
        status = await runs.until("one", lambda run: bool(run.processes))
        assert pid in {process.pid for process in status.processes}
        command = next(one.command for one in status.processes if one.pid == pid)
        assert command.startswith("VLLM::Worker_TP0")
        assert status.exit is not None
        assert status.exit.reason == "supervisor gone"
        await link.stop_run("one", grace_s=0.2)
        stop = (await runs.until("one", is_done)).stop
        assert stop is not None
        assert stop.gone_at is not None
        assert stop.kill_count >= 1
        assert not is_alive(pid)


async def test_a_second_stop_only_hastens_the_first(
    link: AgentLink, runs: Runs, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    leader, worker = await started(link, mark, *server(worker_code(mark)))
    await link.stop_run("one", grace_s=60.0)
    first = (await runs.until("one", lambda run: bool(run.stop and run.stop.term_count))).stop
    await link.stop_run("one", grace_s=90.0)
    await link.stop_run("one", grace_s=0.0)
    stop = (await runs.until("one", is_done)).stop
    assert first is not None
    assert stop is not None
    assert stop.requested_at == first.requested_at
    assert (stop.term_count, stop.kill_count) == (2, 1)
    assert not is_alive(leader)
    assert not is_alive(worker)


async def test_a_stop_outlives_the_link(state: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with linked(LocalTransport(), state) as link:
        leader, worker = await started(link, mark, *server(worker_code(mark)))
        await link.stop_run("one", grace_s=4.0)
    assert is_alive(worker)
    await until(lambda: not is_alive(worker) and not is_alive(leader))
    async with linked(LocalTransport(), state) as link, watched(link) as runs:
        stop = (await runs.until("one", is_done)).stop
        assert stop is not None
        assert stop.gone_at is not None
        assert stop.kill_count == 1


async def test_an_ended_run_can_be_stopped(link: AgentLink, runs: Runs) -> None:
    await link.start_run(request("one", *python("pass")))
    await runs.until("one", lambda run: run.exit is not None)
    await link.stop_run("one", grace_s=5.0)
    stop = (await runs.until("one", is_done)).stop
    assert stop is not None
    assert stop.gone_at is not None
    assert (stop.term_count, stop.kill_count) == (0, 0)


async def test_a_stranger_under_the_recorded_pid_is_left_alone(
    link: AgentLink, runs: Runs, state: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    ) as stranger:
        try:
            await link.start_run(request("one", *python("pass")))
            await runs.until("one", lambda run: run.exit is not None)
            path = state / "eaglemon/runs/one/run.json"
            record = json.loads(path.read_text())
            # As after pids came round: the number is another process's, with other ticks.
            path.write_text(json.dumps({**record, "pid": stranger.pid}))
            await link.stop_run("one", grace_s=0.0)
            await runs.until("one", is_done)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_signal_needs_the_same_start_ticks() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        proc = agent.read_proc(child.pid)
        assert proc is not None
        assert not agent.send_signal((proc.pid, proc.start_ticks + 1), signal.SIGKILL)
        assert child.poll() is None
        assert agent.send_signal(proc.key, signal.SIGKILL)
    assert not agent.send_signal(proc.key, signal.SIGKILL)
    assert not agent.send_signal((1, 1), signal.SIGKILL)


@pytest.mark.parametrize("pidfd", [True, False])
def test_signals_work_without_pidfd(pidfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    with subprocess.Popen(["sleep", "600"]) as child:
        proc = agent.read_proc(child.pid)
        assert proc is not None
        assert agent.send_signal(proc.key, signal.SIGTERM)
        assert child.wait(5) == -signal.SIGTERM
