"""Servers in real containers, of Docker and of Podman: ``make test-containers``."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from eaglemon.app.hub import Hub
from eaglemon.core.foreign import ForeignServer
from eaglemon.core.hosts import GpuProcess, HostSpec
from eaglemon.core.runs import RunStatus
from eaglemon.core.views import ServerState
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.local import LocalTransport
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host_files import write_host_files
from tests.agent.driver import is_alive, kill_all_of, linked, request, watched
from tests.agent.test_agent_gpus import build
from tests.hosts3.container_engines import ContainerEngine, docker, podman
from tests.ports import free_port

pytestmark = pytest.mark.containers
LIMIT_S = 60.0


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Iterator[ContainerEngine]:
    with {"docker": docker, "podman": podman}[request.param]() as one:
        yield one


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir()
    yield folder
    kill_all_of(folder)


@pytest.fixture
def box(engine: ContainerEngine, tmp_path: Path) -> Iterator[str]:
    """A running container that has the simulated engines."""
    folder = tmp_path / "host"
    folder.mkdir()
    env = write_host_files(folder, gpus=1, first_gpu=0, speed=20.0)
    del env["EAGLEMON_SIM_DIR"]  # GPU memory of the simulation is held by pids of the host
    yield engine.start("sleep", "600", env=env, mounts=(folder,))
    engine.end()


def host(engine: ContainerEngine, state: Path) -> HostSpec:
    env = {"PATH": f"{engine.tools}:{os.environ['PATH']}", "XDG_STATE_HOME": str(state)}
    return HostSpec(name="here", transport="local", env=env)


def hub_of(spec: HostSpec) -> Hub:
    return Hub((spec,), ProfileStore.load(), connect=transport_to, workload=load_workload)


@contextlib.asynccontextmanager
async def agent_at(spec: HostSpec, **env: str) -> AsyncIterator[AgentLink]:
    async with linked(
        LocalTransport(), Path(spec.env["XDG_STATE_HOME"]), PATH=spec.env["PATH"], **env
    ) as link:
        yield link


async def process_when_named(link: AgentLink, name: str) -> GpuProcess:
    async with aclosing(link.watch_gpus(interval_s=0.1, processes_interval_s=0.1)) as samples:
        async for sample in samples:
            for process in sample.processes:
                if process.container == name:
                    return process
    raise AssertionError("the samples ended")


def inner_pid(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid")).split()[-1])


def contained(run: RunStatus) -> list[int]:
    """Return the pids that are in a container: neither the client nor Podman's helper."""
    alive = [one.pid for one in run.processes if is_alive(one.pid)]
    return [pid for pid in alive if inner_pid(pid) != pid]


async def test_a_profile_runs_in_a_container(
    engine: ContainerEngine, box: str, state: Path, driver_folder: Path
) -> None:
    spec = host(engine, state)
    async with hub_of(spec) as hub:
        await hub.settle()
        where = box if engine.name == "docker" else f"podman:{box}"
        plan = hub.plan("vllm-eagle3", "here", {"container": where, "port": str(free_port())})
        server_id = await hub.launch(plan, force=True)
        view = await hub.wait(server_id, timeout_s=LIMIT_S)
        assert view.state is ServerState.READY
        lines = [line async for batch in hub.logs(server_id, follow=False) for line in batch.lines]
        assert any("Application startup complete" in line for line in lines)
        # The client, the server, and its engine process; the server has another title by now.
        inside: list[int] = []
        async with asyncio.timeout(LIMIT_S):
            async for snapshot in hub.updates():
                (view,) = snapshot.servers
                inside = [pid for pid in view.pids if is_alive(pid) and inner_pid(pid) != pid]
                if len(inside) >= 2:
                    break
        settings = {"LD_LIBRARY_PATH": str(driver_folder), "FAKE_GPUS": "1"}
        # Another console, later: it knows them by the record alone.
        async with agent_at(spec, FAKE_PID=str(inside[0]), **settings) as link:
            process = await process_when_named(link, box)
        assert process.run_id == server_id
        assert process.container_pid == inner_pid(inside[0])
        stopped = await hub.stop(server_id, grace_s=1.0)
        assert stopped.pids == ()
        assert not any(is_alive(pid) for pid in inside)
        lines = [line async for batch in hub.logs(server_id, follow=False) for line in batch.lines]
        assert any("Shutting down" in line for line in lines)
        assert is_alive(engine.pid(box))


async def test_a_server_is_ended_although_its_client_died_first(
    engine: ContainerEngine, box: str, state: Path
) -> None:
    spec = host(engine, state)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    argv = (engine.name, "exec", box, sys.executable, "-c", code)

    async with agent_at(spec) as link, watched(link) as runs:
        record = await link.start_run(request("one", *argv))
        status = await runs.until("one", lambda run: bool(contained(run)))
        (pid,) = contained(status)
        os.kill(record.pid or 0, signal.SIGKILL)
        status = await runs.until("one", lambda run: run.exit is not None)
        assert contained(status) == [pid]
    # Another console comes; the command line would tell it, but so does the record.
    async with agent_at(spec) as link, watched(link) as runs:
        await runs.until("one", lambda run: bool(contained(run)))
        await link.stop_run("one", grace_s=0.3)
        status = await runs.until("one", lambda run: bool(run.stop and run.stop.gone_at))
        assert status.stop is not None
        assert (status.stop.term_count, status.stop.left) == (1, ())
        assert status.stop.kill_count >= 1
        assert not is_alive(pid)
        assert is_alive(engine.pid(box))


async def test_one_of_two_containers_with_the_same_command_is_ended(
    engine: ContainerEngine, box: str, state: Path
) -> None:
    spec, other = host(engine, state), engine.start("sleep", "600")
    argv = (sys.executable, "-c", "import time; time.sleep(600)")
    async with agent_at(spec) as link, watched(link) as runs:
        await link.start_run(request("one", engine.name, "exec", box, *argv))
        await link.start_run(request("two", engine.name, "exec", other, *argv))
        first = await runs.until("one", lambda run: bool(contained(run)))
        second = await runs.until("two", lambda run: bool(contained(run)))
        assert not {one.pid for one in first.processes} & {one.pid for one in second.processes}
        await link.stop_run("one", grace_s=5.0)
        await runs.until("one", lambda run: bool(run.stop and run.stop.gone_at))
        assert not any(is_alive(one.pid) for one in first.processes)
        assert all(is_alive(one.pid) for one in second.processes)
        await link.stop_run("two", grace_s=5.0)
        await runs.until("two", lambda run: bool(run.stop and run.stop.gone_at))


async def test_a_server_in_a_container_that_others_started_is_seen(
    engine: ContainerEngine, box: str, state: Path
) -> None:
    spec, port = host(engine, state), str(free_port())
    engine.call("exec", "-d", box, "vllm", "serve", "/models/target", "--port", port)
    async with hub_of(spec) as hub:
        await hub.settle()
        async with asyncio.timeout(LIMIT_S):
            found: list[ForeignServer] = []
            while not found:
                found = [one for one in await hub.foreign("here") if one.profile.port == int(port)]
        (server,) = found
        assert server.container == box
        assert server.container_pid == inner_pid(server.pid)
        assert f"in container {box} (PID {server.container_pid} there)" in str(server)


@pytest.fixture
def nobody(engine: ContainerEngine) -> Iterator[HostSpec]:
    """This machine for a user who may use Docker and is not the container's."""
    (engine.tools.parent / "socket").chmod(0o666)  # as the group docker may use it
    folder = Path(tempfile.mkdtemp(prefix="em-", dir="/tmp"))
    folder.chmod(0o755)
    home, program = folder / "home", folder / "python"
    home.mkdir()
    os.chown(home, 65534, 65534)
    run_as = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    program.write_text(f'#!/bin/sh\nexec {run_as} /usr/bin/python3 "$@"\n')
    program.chmod(0o755)
    path = f"{engine.tools}:{os.environ['PATH']}"
    env = {"XDG_STATE_HOME": str(home), "HOME": str(home), "PATH": path}
    yield HostSpec(name="here", transport="local", python=str(program), env=env)
    kill_all_of(folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
async def test_what_this_user_may_not_signal_is_ended_through_the_container(
    engine: ContainerEngine, box: str, nobody: HostSpec
) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    link = await AgentLink.open(LocalTransport(), python=nobody.python, env=nobody.env)
    try:
        async with watched(link) as runs:
            assert link.facts.uid == 65534
            argv = (engine.name, "exec", box, sys.executable, "-c", code)
            await link.start_run(request("one", *argv))
            status = await runs.until("one", lambda run: bool(contained(run)))
            (pid,) = contained(status)
            await link.stop_run("one", grace_s=0.5)
            status = await runs.until("one", lambda run: bool(run.stop and run.stop.gone_at))
            assert status.stop is not None
            assert status.stop.left == ()
            assert not is_alive(pid)
    finally:
        await link.close()


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
async def test_a_foreign_server_in_a_container_is_ended_through_it(
    engine: ContainerEngine, box: str, nobody: HostSpec
) -> None:
    port = str(free_port())
    engine.call("exec", "-d", box, "vllm", "serve", "/models/target", "--port", port)
    async with hub_of(nobody) as hub:
        await hub.settle()
        async with asyncio.timeout(LIMIT_S):
            found: list[ForeignServer] = []
            while not found:
                found = [one for one in await hub.foreign("here") if one.profile.port == int(port)]
        stopped = await hub.stop_foreign(found[0].id, grace_s=20.0, told=lambda _: None)
        assert stopped.left == ()
        assert not is_alive(found[0].pid)
        assert is_alive(engine.pid(box))
