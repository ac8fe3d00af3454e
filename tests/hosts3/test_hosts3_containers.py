"""GPU processes in containers: their name and their PID inside.

Without a container engine (test_hosts3_real_containers has those): the process is in a PID
namespace and a control group of its own, and a stand-in for the docker command tells the name.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from eaglemon.agent import agent
from eaglemon.core.hosts import GpuProcess
from eaglemon.core.profiles import Profile
from eaglemon.engines.command import reached
from eaglemon.io.local import LocalTransport
from tests.agent.driver import linked
from tests.agent.test_agent_gpus import build

CONTAINER_ID = secrets.token_hex(32)
"""Of this run of the tests: others may go on at the same time."""
GROUPS = [Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")]


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def contained() -> Iterator[int]:
    """The pid, as the host sees it, of a process in a namespace and a group of its own."""
    root = next((one for one in GROUPS if os.access(one / "cgroup.procs", os.W_OK)), None)
    if root is None or os.geteuid() != 0:
        pytest.skip("needs root and a control group that can be written")
    group = root / f"docker-{CONTAINER_ID}.scope"
    group.mkdir()
    starter = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "sleep 600; true"],
        start_new_session=True,
    )
    try:
        children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")
        while not (words := children.read_text().split()):
            pass
        pid = int(words[0])
        (group / "cgroup.procs").write_text(str(pid))
        yield pid
    finally:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
        for _ in range(500):
            # The kernel lets go of it a moment after its last process.
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.01)


async def first_when_named(
    state: Path, driver_folder: Path, pid: int, path: str, name: str
) -> GpuProcess:
    env = {
        "LD_LIBRARY_PATH": str(driver_folder),
        "FAKE_GPUS": "1",
        "FAKE_PID": str(pid),
        "PATH": path,
    }
    async with (
        linked(LocalTransport(), state, **env) as link,
        aclosing(link.watch_gpus(interval_s=0.1, processes_interval_s=0.1)) as samples,
        asyncio.timeout(60.0),
    ):
        async for sample in samples:
            (process,) = sample.processes
            if process.container == name:
                return process
    raise AssertionError("the samples ended")


async def test_a_container_is_named_and_its_pids_mapped(
    contained: int, driver_folder: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    docker = tools / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$1" = ps ] || exit 1\necho {CONTAINER_ID} serving-vllm\n')
    docker.chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    process = await first_when_named(tmp_path, driver_folder, contained, path, "serving-vllm")
    assert process.pid == contained
    assert process.container_pid == 1
    assert "sleep 600" in str(process.command)


async def test_without_leave_to_ask_docker_the_short_id_stays(
    contained: int, driver_folder: Path, tmp_path: Path
) -> None:
    for tool in ("docker", "podman"):
        (tmp_path / tool).write_text("#!/bin/sh\necho permission denied >&2; exit 1\n")
        (tmp_path / tool).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    process = await first_when_named(tmp_path, driver_folder, contained, path, CONTAINER_ID[:12])
    assert process.container_pid == 1


def test_what_runs_inside_is_read_from_the_client_command() -> None:
    words = ["podman", "exec", "-e", "HF_TOKEN", "--workdir=/w", "-u", "0", "box", "vllm", "serve"]
    inside = agent.inside_of(words)
    assert inside is not None
    assert (inside.program, inside.container, inside.argv) == ("podman", "box", ["vllm", "serve"])
    assert agent.inside_of(["docker", "ps", "-a", "-q"]) is None
    assert agent.inside_of(["docker", "exec", "-e", "A", "box"]) is None


def test_the_program_of_a_container_is_chosen_by_the_profile() -> None:
    profile = Profile(name="p", engine="vllm", model="m", port=1, container="podman:box")
    assert reached(profile, ("vllm", "serve"), ["HF_TOKEN"]) == (
        *("podman", "exec", "-e", "HF_TOKEN", "box"),
        *("vllm", "serve"),
    )
