"""The preflight's questions to the host."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from eaglemon.agent import agent, foreign
from eaglemon.core.runs import PathFact
from eaglemon.io.agent_link import AgentLink
from tests.agent.driver import own_command


async def test_paths(link: AgentLink, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    names = ["file", ".", "absent", "pipe"]
    check = await link.check_host(paths=[*(f"{tmp_path}/{name}" for name in names), "~"])
    assert check.paths == (
        PathFact(path=f"{tmp_path}/file", kind="file", readable=True),
        PathFact(path=f"{tmp_path}/.", kind="folder", readable=True),
        PathFact(path=f"{tmp_path}/absent", kind="missing", readable=False),
        PathFact(path=f"{tmp_path}/pipe", kind="other", readable=True),
        PathFact(path="~", kind="folder", readable=True),
    )
    assert check.shm_free_bytes is None or check.shm_free_bytes > 0
    assert check.state_free_bytes is not None
    assert check.state_free_bytes > 0


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
async def test_who_listens_on_a_port(
    link: AgentLink, family: socket.AddressFamily, address: str
) -> None:
    with socket.socket(family) as server:
        server.bind((address, 0))
        port = server.getsockname()[1]
        assert (await link.check_host(port=port)).listeners == ()
        server.listen()
        (listener,) = (await link.check_host(port=port)).listeners
        assert (listener.address, listener.port) == (address, port)
        assert listener.pid == os.getpid()
        assert listener.user == Path("/proc/self").owner()
        assert listener.command == own_command()


async def test_the_program_is_looked_up_as_the_profile_would(
    link: AgentLink, tmp_path: Path
) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert (await link.check_host(argv=["server"])).program is None
    found = await link.check_host(argv=["server", "-x"], env={"PATH": str(tmp_path)})
    assert found.program == str(program)
    assert (await link.check_host(argv=[str(program)])).program == str(program)


async def test_the_engine_version(link: AgentLink, tmp_path: Path) -> None:
    check = await link.check_host(python=sys.executable, package="pytest")
    assert check.engine_version == pytest.__version__
    check = await link.check_host(python=sys.executable, package="no-such-package")
    assert check.engine_version is None
    assert check.engine_error == f"no-such-package is not installed in {sys.executable}"
    check = await link.check_host(python=str(tmp_path / "python"), package="pytest")
    assert "No such file" in str(check.engine_error)
    script = tmp_path / "vllm"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    check = await link.check_host(argv=[str(script), "serve"], package="pytest")
    assert check.engine_version == pytest.__version__
    check = await link.check_host(argv=["sh"], package="pytest")
    assert "no Python" in str(check.engine_error)


def test_paths_are_asked_about_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    all_at_once = threading.Barrier(4, timeout=60.0)

    def look(path: str) -> dict[str, object]:
        all_at_once.wait()
        return {"path": path}

    monkeypatch.setattr(agent, "check_path", look)
    monkeypatch.setattr(agent, "PATH_LIMIT_S", 60.0)
    names = [f"/side/{number}" for number in range(4)]
    assert agent.check_host({"paths": names})["paths"] == [{"path": name} for name in names]


def test_a_program_and_an_interpreter_that_hang_are_told_as_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = threading.Event()

    def hang(*_: object) -> None:
        end.wait(60.0)

    monkeypatch.setattr(agent, "PATH_LIMIT_S", 0.2)
    monkeypatch.setattr(agent, "VERSION_LIMIT_S", -0.8)
    monkeypatch.setattr(agent, "find_version", hang)
    answer = agent.check_host({"python": "/hangs/python", "package": "vllm"})
    assert answer["paths"] == [{"path": "/hangs/python", "kind": "silent", "readable": False}]
    assert answer["engine_error"] is None
    monkeypatch.setattr(agent, "find_program", hang)
    answer = agent.check_host({"argv": ["/hangs/vllm", "serve"], "package": "vllm"})
    assert answer["paths"] == [{"path": "/hangs/vllm", "kind": "silent", "readable": False}]
    assert (answer["program"], answer["engine_error"]) == ("/hangs/vllm", None)
    end.set()


def test_a_process_name_may_hold_brackets_and_spaces(tmp_path: Path) -> None:
    program = tmp_path / "a) R (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as child:
        proc = agent.read_proc(child.pid)
        assert proc is not None
        assert (proc.parent, proc.pid) == (os.getpid(), child.pid)
        assert proc.start_ticks > 0
        child.kill()


@pytest.mark.parametrize(
    ("line", "container"),
    [
        ("0::/user.slice/session-1.scope", None),
        ("0::/system.slice/docker-" + "ab" * 32 + ".scope", "ab" * 6),
        ("12:memory:/docker/" + "cd" * 32, "cd" * 6),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + "ef" * 32 + ".scope", "ef" * 6),
        ("0::/machine.slice/libpod-" + "12" * 32 + ".scope", "12" * 6),
        ("0::/user.slice/app-" + "34" * 32 + ".scope", None),
    ],
)
@pytest.mark.parametrize("program", [agent, foreign])
def test_containers_are_read_from_the_cgroup(
    program: ModuleType, line: str, container: str | None
) -> None:
    found = program.CONTAINER.search(line)
    assert (found.group(1)[:12] if found else None) == container


def test_what_has_just_begun_is_looked_at_again() -> None:
    """It may have been read between its fork and its exec."""
    with subprocess.Popen(["sleep", "60"]) as child:
        mine, first = agent.read_proc(child.pid), agent.read_proc(1)
        child.kill()
    assert mine is not None
    assert first is not None
    assert agent.young([mine, first]) == [child.pid]


def test_a_path_may_be_asked_about_by_several_requests_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A thread that begins late is what another request must not stumble over.
    begin = threading.Thread.start

    def late(thread: threading.Thread) -> None:
        if thread.name.startswith("asked"):
            begin(thread)
            return
        asked.release()
        time.sleep(0.01)
        begin(thread)

    asked = threading.Semaphore(0)
    answers: list[object] = []

    def ask() -> None:
        answers.append(agent.within(60.0, "/some/path", lambda: "there", "late"))

    monkeypatch.setattr(threading.Thread, "start", late)
    first = threading.Thread(target=ask, name="asked 1")
    second = threading.Thread(target=ask, name="asked 2")
    first.start()
    assert asked.acquire(timeout=60.0)
    second.start()
    first.join(60.0)
    second.join(60.0)
    assert answers == ["there", "there"]
