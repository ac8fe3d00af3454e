"""A full disk on the host: what can be done is done, and told once there is room again."""

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eaglemon.agent import agent
from eaglemon.core.runs import RunStatus
from eaglemon.io.host_link import HostLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import is_alive, kill_all_of, linked, python, request, until, watched
from tests.hosts3.shell_host import shell_link

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
_DETACH = 2


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    folder = tmp_path / "state"
    folder.mkdir()
    libc, name = ctypes.CDLL(None), str(folder).encode()
    assert libc.mount(b"tmpfs", name, b"tmpfs", 0, b"size=512k") == 0
    try:
        yield folder
    finally:
        kill_all_of(folder)
        assert libc.umount2(name, _DETACH) == 0


def fill(folder: Path) -> Path:
    """Write until there is no room left; return the file that takes it."""
    path = folder / "fill"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b" " * 1024):
            pass
    return path


async def stopped_on_full_disk(link: HostLink, state: Path) -> RunStatus:
    """Start a run, fill the disk, stop it, make room, and return what is told then."""
    async with watched(link) as runs:
        await link.start_run(request("one", *python("import time; time.sleep(600)")))
        status = await runs.until("one", lambda run: len(run.processes) == 1)
        taken = fill(state)
        await link.stop_run("one", grace_s=60.0)
        await until(lambda: not is_alive(status.processes[0].pid))
        # Its end too is told, although nobody can write it.
        ended = await runs.until("one", lambda run: run.exit is not None and not run.processes)
        assert ended.stop is None
        taken.unlink()
        return await runs.until("one", lambda run: bool(run.stop and run.stop.gone_at))


async def test_a_stop_on_a_full_disk_ends_the_server(small: Path) -> None:
    async with linked(LocalTransport(), small) as link:
        status = await stopped_on_full_disk(link, small)
    assert status.stop is not None
    assert status.stop.pids == (status.record.pid,)


async def test_a_stop_on_a_full_disk_ends_the_server_without_python_too(small: Path) -> None:
    async with shell_link(small) as link:
        status = await stopped_on_full_disk(link, small)
    assert status.stop is not None
    assert status.stop.pids == (status.record.pid,)


async def test_an_end_that_cannot_be_written_is_told_and_how_it_was_once_there_is_room(
    small: Path,
) -> None:
    async with linked(LocalTransport(), small) as link, watched(link) as runs:
        record = await link.start_run(request("one", *python("import time; time.sleep(600)")))
        assert record.pid is not None
        taken = fill(small)
        os.kill(record.pid, signal.SIGKILL)
        status = await runs.until("one", lambda run: run.exit is not None)
        assert status.exit is not None
        assert (status.exit.signal, status.exit.reason) == (None, "how it ended cannot be written")
        taken.unlink()
        await runs.until("one", lambda run: run.exit is not None and run.exit.signal == "SIGKILL")


def test_a_second_stop_that_cannot_hasten_the_first_ends_the_server_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"folder": str(tmp_path), "requested_at": time.time(), "grace_s": 0.0}
    assert not agent.joins_other(job)
    assert agent.joins_other(job)
    monkeypatch.setattr(agent, "write_json", no_room)
    assert not agent.joins_other(job)


def test_signals_do_not_wait_for_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[dict[str, Any]] = []

    def keep(path: str, value: dict[str, Any]) -> None:
        # There is room again when all is over.
        if value["gone_at"] is None:
            no_room(path, value)
        written.append(dict(value))

    with subprocess.Popen(python(DEAF)) as child:
        proc = agent.read_proc(child.pid)
        assert proc is not None
        agent.write_json(str(tmp_path / "run.json"), {"boot_id": agent.read_boot_id()})
        monkeypatch.setattr(agent, "write_json", keep)
        known = [proc.key]
        stopper = agent.Stopper(
            {"folder": str(tmp_path), "requested_at": 1.0, "grace_s": 0.0, "known": known}
        )
        stopper.save()
        stopper.run()
        assert child.wait(60) in {-signal.SIGKILL, -signal.SIGTERM}
    (account,) = written
    assert account["pids"] == [child.pid]


def no_room(path: str, value: object) -> None:
    del value
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
