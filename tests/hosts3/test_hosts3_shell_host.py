"""Hosts without python3: launch, status, log, stop and GPUs through plain sh."""

import asyncio
import json
import operator
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.core.nvidia_smi import MIB
from eaglemon.core.runs import RunStatus
from eaglemon.errors import AgentError, HostError, TimeLimitError
from eaglemon.io import shell_host
from eaglemon.io.connect import open_link
from eaglemon.io.local import LocalProcess, LocalTransport
from eaglemon.io.shell_host import SILENT_S, ShellLink
from tests.agent.driver import (
    is_alive,
    kill_all_of,
    linked,
    own_command,
    python,
    request,
    until,
    watched,
)
from tests.hosts3.shell_host import Smi, sample_when, shell_link


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir()
    yield folder
    kill_all_of(folder)


@pytest.fixture
def smi(tmp_path: Path) -> Smi:
    return Smi(tmp_path / "smi")


@pytest.fixture
async def link(state: Path) -> AsyncIterator[ShellLink]:
    async with shell_link(state) as one:
        yield one


def stopped(run: RunStatus) -> bool:
    return bool(run.exit and run.stop and run.stop.gone_at)


async def test_a_host_without_python_is_answered_by_sh(state: Path) -> None:
    spec = HostSpec(name="bare", python="/no/python3", env={"XDG_STATE_HOME": str(state)})
    link = await open_link(LocalTransport(), spec)
    try:
        assert isinstance(link, ShellLink)
        assert link.facts.hostname == socket.gethostname()
        assert link.facts.uid == os.getuid()
        assert link.facts.cpu_count == os.cpu_count()
        assert link.facts.state_dir == str(state / "eaglemon")
        assert "no python3" in link.facts.limits[0]
        before = time.time()
        assert before - 0.01 <= await link.ping() <= time.time() + 0.01
        with pytest.raises(AgentError, match="no python3") as caught:
            await anext(link.run_program(b"print(1)"))
        assert caught.value.kind == "no-python"
    finally:
        await link.close()


async def test_a_host_without_awk_and_python_says_so(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    for tool in ("id", "sed", "grep", "mkdir", "printf"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    with pytest.raises(HostError, match="setsid is missing too"):
        await ShellLink.open(LocalTransport(), env={"PATH": str(tmp_path)})


async def test_the_whole_life_of_a_server(link: ShellLink, state: Path) -> None:
    async with watched(link) as runs:
        code = "import os, time; print('up', os.environ['KEY'], flush=True); time.sleep(600)"
        started = request("one", *python(code), env={"KEY": 'it\'s $HOME "x"'})
        record = await link.start_run(started)
        assert record.pid is not None
        assert record.start_ticks is not None
        assert record.log_path == str(state / "eaglemon/runs/one/server.log")
        status = await runs.until("one", lambda run: bool(run.processes))
        assert status.record == record
        assert status.processes[0].pid == record.pid
        assert "time.sleep" in status.processes[0].command
        async with aclosing(link.follow_log("one")) as log:
            assert (await anext(log)).data == b'up it\'s $HOME "x"\n'
            await link.stop_run("one", grace_s=5.0)
            ended = await runs.until("one", stopped)
            assert ended.exit is not None
            assert ended.stop is not None
            assert ended.exit.signal == "SIGTERM"
            assert (ended.stop.term_count, ended.stop.kill_count) == (1, 0)
            assert [chunk.ended async for chunk in log][-1]
        assert not is_alive(record.pid)
        assert not ended.processes
        await link.forget_run("one")
        assert not (state / "eaglemon/runs/one").exists()


async def test_secrets_of_the_environment_are_in_no_file(link: ShellLink, state: Path) -> None:
    await link.start_run(request("one", *python("import time; time.sleep(600)"), env={"K": "hush"}))
    for path in (state / "eaglemon/runs/one").iterdir():
        assert b"hush" not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert b"hush" not in entry.read_bytes()
        except OSError:
            continue


async def test_a_worker_that_ignores_term_is_killed(link: ShellLink) -> None:
    code = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(600)"
    )
    async with watched(link) as runs:
        await link.start_run(request("one", *python(code)))
        status = await runs.until("one", lambda run: len(run.processes) == 2)
        await link.stop_run("one", grace_s=1.25)
        ended = await runs.until("one", stopped)
    assert ended.stop is not None
    assert (ended.stop.term_count, ended.stop.kill_count) == (2, 1)
    assert ended.stop.grace_s == 1.25
    assert ended.stop.term_sent_at is not None
    assert ended.stop.kill_sent_at is not None
    # Never before the grace is over.
    assert ended.stop.kill_sent_at - ended.stop.term_sent_at >= 1.2
    assert not any(is_alive(process.pid) for process in status.processes)


async def test_exits_are_told_by_code_and_signal(link: ShellLink) -> None:
    async with watched(link) as runs:
        await link.start_run(request("code", *python("raise SystemExit(3)")))
        code = await runs.until("code", lambda run: run.exit is not None)
        record = await link.start_run(request("signal", *python("import time; time.sleep(600)")))
        assert record.pid is not None
        os.kill(record.pid, signal.SIGKILL)
        killed = await runs.until("signal", lambda run: run.exit is not None)
    assert code.exit is not None
    assert (code.exit.code, code.exit.signal) == (3, None)
    assert killed.exit is not None
    assert (killed.exit.code, killed.exit.signal) == (None, "SIGKILL")
    assert killed.exit.reason == "SIGKILL, or exit code 137"


async def test_launches_that_cannot_be(link: ShellLink) -> None:
    with pytest.raises(AgentError, match="cannot execute") as caught:
        await link.start_run(request("none", "/no/such/program"))
    assert caught.value.kind == "spawn-failed"
    await link.start_run(request("one", "true"))
    with pytest.raises(AgentError, match="already") as caught:
        await link.start_run(request("one", "true"))
    assert caught.value.kind == "run-exists"
    with pytest.raises(AgentError) as caught:
        await link.stop_run("two", grace_s=1.0)
    assert caught.value.kind == "no-such-run"


async def test_a_program_below_the_home_is_found(state: Path, tmp_path: Path) -> None:
    interpreter = tmp_path / "venv/bin/python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text("#!/bin/sh\necho 0.5.16\n")
    interpreter.chmod(0o755)
    async with shell_link(state, {"HOME": str(tmp_path)}) as link:
        named = "~/venv/bin/python"
        check = await link.check_host(
            paths=["~", "~/venv"], argv=[named, "-m", "x"], python=named, package="any"
        )
    assert check.program == str(interpreter)
    assert check.engine_version == "0.5.16"
    assert [path.kind for path in check.paths] == ["folder", "folder"]


async def test_the_agent_goes_on_with_runs_of_sh_and_the_other_way_round(state: Path) -> None:
    forever = python("import time; print('up', flush=True); time.sleep(600)")
    async with shell_link(state) as bare:
        of_sh = await bare.start_run(request("of-sh", *forever))
    async with linked(LocalTransport(), state) as agent, watched(agent) as runs:
        status = await runs.until("of-sh", lambda run: bool(run.processes))
        assert status.record == of_sh
        assert [process.pid for process in status.processes] == [of_sh.pid]
        await agent.start_run(request("of-agent", *forever))
        await agent.stop_run("of-sh", grace_s=5.0)
        ended = await runs.until("of-sh", stopped)
        assert ended.exit is not None
        assert ended.exit.signal == "SIGTERM"
    async with shell_link(state) as bare, watched(bare) as again:
        await again.until("of-agent", lambda run: bool(run.processes))
        await bare.stop_run("of-agent", grace_s=5.0)
        await again.until("of-agent", stopped)


async def test_a_log_is_resumed_truncated_and_binary(link: ShellLink, state: Path) -> None:
    await link.start_run(request("one", *python("import time; time.sleep(600)")))
    log = state / "eaglemon/runs/one/server.log"
    content = bytes(range(256)) * 4096
    log.write_bytes(content)
    taken = b""
    async with aclosing(link.follow_log("one", offset=10)) as chunks:
        async for chunk in chunks:
            assert chunk.offset == 10 + len(taken)
            taken += chunk.data
            if len(taken) == len(content) - 10:
                break
        assert taken == content[10:]
        log.write_bytes(b"new\n")
        chunk = await anext(chunks)
        assert (chunk.restarted, chunk.offset, chunk.data) == (True, 0, b"new\n")
    log.write_bytes(b"a\nbb\nccc\n")
    assert [await link.log_tail("one", lines=lines) for lines in (0, 1, 2, 5)] == [9, 5, 2, 0]


async def test_more_logs_than_channels_take_turns(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_host, "LOGS_AT_A_TIME", 1)
    monkeypatch.setattr(shell_host, "LOG_TURN_S", 0.5)
    heard = dict.fromkeys(("one", "two", "three"), b"")
    async with shell_link(state) as link:

        async def read(name: str) -> None:
            async with aclosing(link.follow_log(name)) as chunks:
                async for chunk in chunks:
                    heard[name] += chunk.data

        for name in heard:
            await link.start_run(request(name, *python("import time; time.sleep(600)")))
        readers = [asyncio.create_task(read(name)) for name in heard]
        for number in (1, 2):
            for name in heard:
                with (state / f"eaglemon/runs/{name}/server.log").open("ab") as log:
                    log.write(b"line\n")
            written = dict.fromkeys(heard, b"line\n" * number)
            await until(partial(operator.eq, heard, written))
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)


async def test_a_channel_that_is_never_opened_is_told(
    link: ShellLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(command: str) -> LocalProcess:
        await asyncio.Event().wait()
        raise AssertionError(command)

    transport = LocalTransport("bare")
    monkeypatch.setattr(transport, "open_process", never)
    with pytest.raises(TimeLimitError, match=r"a command on bare did not end within 0\.05 s"):
        await transport.run("true", timeout_s=0.05)
    monkeypatch.setattr(link, "_transport", transport)
    monkeypatch.setattr(shell_host, "LIMIT_S", 0.05)
    with pytest.raises(HostError, match="bare has opened no channel"):
        await anext(link.follow_log("one"))


async def test_a_preflight_is_answered(link: ShellLink, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        check = await link.check_host(
            paths=[str(tmp_path / "file"), str(tmp_path), str(tmp_path / "no")],
            port=port,
            argv=["sh", "-c", "true"],
            package="anything",
        )
    assert [(path.kind, path.readable) for path in check.paths] == [
        ("file", True),
        ("folder", True),
        ("missing", False),
    ]
    (listener,) = check.listeners
    assert (listener.address, listener.port, listener.pid) == ("127.0.0.1", port, os.getpid())
    assert check.program is not None
    assert Path(check.program).name == "sh"
    assert check.engine_error == "there is no python3 on this host to ask"
    assert check.shm_free_bytes
    assert check.state_free_bytes


async def test_gpus_come_from_nvidia_smi(state: Path, smi: Smi) -> None:
    smi.write("apps.csv", f"GPU-1, {os.getpid()}, python, 150\nGPU-2, 4194304, x, [N/A]\n")
    async with shell_link(state, smi.env) as link:
        assert link.facts.nvml_error is None
        sample = await sample_when(link, lambda one: True)
        assert link.facts.driver_version == "580.159.04"
    assert [(gpu.index, gpu.uuid) for gpu in sample.gpus] == [(0, "GPU-1"), (1, "GPU-2")]
    gpu = sample.gpus[0]
    assert (gpu.memory_used_bytes, gpu.memory_reserved_bytes) == (10 * MIB, 616 * MIB)
    assert (gpu.power_w, gpu.power_limit_w, gpu.throttle) == (127.67, 700.0, ("power cap",))
    one, hidden = sample.processes
    assert (one.pid, one.memory_bytes, one.user) == (os.getpid(), 150 * MIB, Path.home().owner())
    assert one.command == own_command()
    assert (hidden.user, hidden.memory_bytes) == (None, None)
    assert sample.processes_known


async def test_an_old_driver_is_read_by_its_report(state: Path, smi: Smi) -> None:
    captured = Path(__file__).parents[1] / "captures/nvidia-smi-580-h200/nvidia-smi-q.txt"
    smi.write("old", "")
    smi.write("report.txt", captured.read_text())
    async with shell_link(state, smi.env) as link:
        sample = await sample_when(link, lambda one: True)
    assert [gpu.name for gpu in sample.gpus] == ["NVIDIA H200"]
    assert sample.driver_error is None


async def test_a_lost_gpu_and_its_return(state: Path, smi: Smi) -> None:
    async with (
        shell_link(state, smi.env) as link,
        asyncio.timeout(90),
        aclosing(link.watch_gpus()) as samples,
    ):
        async for sample in samples:
            if sample.driver_error is None:
                break
        smi.write(
            "fails",
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  "
            "Reboot the system to recover this GPU",
        )
        async for sample in samples:
            if sample.driver_error is not None:
                break
        well, lost = sample.gpus
        assert (lost.uuid, lost.memory_used_bytes) == ("GPU-2", None)
        assert "GPU is lost" in str(lost.error)
        assert well.error == "no reading while GPU 0000:02:00.0 is lost"
        (smi.folder / "fails").unlink()
        async for sample in samples:
            if sample.driver_error is None:
                break
        assert [gpu.error for gpu in sample.gpus] == [None, None]


async def test_a_driver_that_hangs_is_told_while_runs_go_on(state: Path, smi: Smi) -> None:
    async with (
        shell_link(state, smi.env) as link,
        asyncio.timeout(90),
        aclosing(link.watch_gpus()) as samples,
    ):
        await anext(samples)
        smi.write("hang", "")
        async for sample in samples:
            if sample.driver_error is not None:
                break
        assert "nvidia-smi has not answered for" in str(sample.driver_error)
        assert [gpu.uuid for gpu in sample.gpus] == ["GPU-1", "GPU-2"]
        assert {gpu.memory_used_bytes for gpu in sample.gpus} == {None}
        record = await link.start_run(request("one", *python("print('ok')")))
        await until(lambda: Path(record.log_path).read_bytes() == b"ok\n")


async def test_without_nvidia_smi_the_host_is_still_usable(state: Path, tmp_path: Path) -> None:
    async with shell_link(state) as link:
        sample = await sample_when(link, lambda one: True)
    assert sample.gpus == ()
    assert sample.driver_error in link.facts.limits
    assert any("no nvidia-smi" in limit for limit in link.facts.limits)


async def test_nothing_is_left_behind_by_a_link(state: Path, smi: Smi) -> None:
    """The loops on the host end with their channels."""

    def left() -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if str(state).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    async with shell_link(state, smi.env) as link, watched(link) as runs:
        await runs.ready.wait()
        await sample_when(link, lambda one: True)
    await until(lambda: not left())


def test_records_of_sh_are_json(state: Path) -> None:
    """Names with quotes reach the record whole."""

    async def run() -> None:
        async with shell_link(state) as link:
            await link.start_run(request("one", "sh", "-c", "echo \"it's\" 'a \\ b'"))
            record = json.loads((state / "eaglemon/runs/one/run.json").read_text())
            assert record["id"] == "one"
            assert record["supervisor"]["pid"] > 0
            await until(lambda: Path(record["log_path"]).read_bytes() == b"it's a \\ b\n")

    asyncio.run(run())


async def test_a_damaged_record_is_told_by_sh_too(link: ShellLink, state: Path) -> None:
    folder = state / "eaglemon" / "runs" / "broken"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"id": "bro')
    async with watched(link) as runs:
        await link.start_run(request("fine", "sleep", "600"))
        await runs.until("fine", lambda run: len(run.processes) == 1)
        (damaged,) = link.damaged_runs.values()
        assert damaged.id == "broken"
        assert damaged.path == str(folder / "run.json")
        assert "no JSON object" in damaged.reason
        # Nothing changes, and nothing is called silent.
        await asyncio.sleep(SILENT_S + 1.5)
        await until(lambda: link.records_silent is None)


async def test_times_are_no_whole_seconds(link: ShellLink) -> None:
    times = [await link.ping() for _ in range(3)]
    assert any(time != int(time) for time in times)
    record = await link.start_run(request("one", "true"))
    async with watched(link) as runs:
        status = await runs.until("one", lambda run: run.exit is not None)
    assert status.exit is not None
    assert status.exit.at is not None
    assert 0 < status.exit.at - record.launched_at < 90
    assert record.launched_at != int(record.launched_at) or status.exit.at != int(status.exit.at)
