"""What others and the system put in the agent's way: links, folders, a kernel without handles."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglemon.agent import agent, foreign


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder that the fallback goes into, of a user whose home cannot be written."""
    (tmp_path / "home").write_text("a file can hold no folder")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(agent, "FALLBACK", str(shared))
    agent.state_dir.cache_clear()
    yield shared
    agent.state_dir.cache_clear()


def test_the_fallback_is_made_for_its_user_alone(places: Path) -> None:
    place = places / f"eaglemon-{os.getuid()}"
    assert agent.state_dir() == str(place)
    assert place.stat().st_mode & 0o777 == 0o700
    assert list(place.iterdir()) == []


def test_a_fallback_that_others_prepared_is_not_written_to(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places / f"eaglemon-{os.getuid()}"
    place.mkdir()
    written: list[str] = []

    def can_write(folder: str) -> bool:
        written.append(folder)
        return False

    monkeypatch.setattr(agent, "can_write", can_write)
    place.chmod(0o777)
    assert agent.state_dir() == agent.usual_state_dir()
    place.rmdir()
    place.symlink_to(places)
    agent.state_dir.cache_clear()
    assert agent.state_dir() == agent.usual_state_dir()
    assert set(written) == {agent.usual_state_dir()}


def test_a_trial_file_never_goes_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    valuable = tmp_path / "valuable"
    valuable.write_text("kept")
    monkeypatch.setattr("time.time_ns", lambda: 7)
    for name in (f".eaglemon-{os.getpid()}-7", f".eaglemon-{os.getpid()}"):
        (tmp_path / name).symlink_to(valuable)
    assert not agent.can_write(str(tmp_path))
    assert valuable.read_text() == "kept"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_processes_are_signalled_where_the_system_gives_no_handles(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    for name in ("foreign", "agent"):
        with subprocess.Popen(["sleep", "600"]) as process:
            try:
                if name == "foreign":
                    one = foreign.read_process(process.pid)
                    assert one is not None
                    assert foreign.send(one, signal.SIGTERM) == ""
                else:
                    proc = agent.read_proc(process.pid)
                    assert proc is not None
                    assert agent.send_signal(proc.key, signal.SIGTERM)
                assert process.wait(60.0) == -signal.SIGTERM
            finally:
                process.kill()


def test_a_foreign_stop_that_breaks_says_so() -> None:
    code = "from eaglemon.agent import foreign; foreign.stop_detached({'pid': 1})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == {"step": "failed", "why": "KeyError: 'start_ticks'"}
