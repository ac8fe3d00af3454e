"""Homes that hang, are read-only or full: GPUs, other servers and other hosts go on."""

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from eaglemon.agent import agent
from eaglemon.app import requirements
from eaglemon.app.hub import Hub
from eaglemon.cli.tables import status_lines
from eaglemon.core.hosts import HostSpec, LinkState
from eaglemon.core.runs import RunStatus
from eaglemon.core.views import HostView
from eaglemon.errors import AgentError, HostError
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.local import LocalTransport
from eaglemon.io.workloads import load_workload
from tests.agent.driver import kill_all_of, linked, python, request, until, watched
from tests.agent.test_agent_gpus import build
from tests.hosts3.hung_folder import hung
from tests.hosts3.shell_host import shell_link

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and /dev/fuse")
    folder = tmp_path / "state"
    folder.mkdir()
    yield folder
    kill_all_of(folder)


async def host_when(hub: Hub, name: str, wanted: Callable[[HostView], bool]) -> HostView:
    async with asyncio.timeout(LIMIT_S):
        async for snapshot in hub.updates():
            host = next(host for host in snapshot.hosts if host.name == name)
            if wanted(host):
                return host
    raise AssertionError("the updates ended")


async def test_a_home_that_hangs_is_told_and_holds_up_nothing_else(
    state: Path, driver_folder: Path, tmp_path: Path
) -> None:
    fake = {"LD_LIBRARY_PATH": str(driver_folder), "FAKE_GPUS": "2"}
    homes = {"hangs": state, "fine": tmp_path / "other"}
    specs = [
        HostSpec(name=name, transport="local", env={**fake, "XDG_STATE_HOME": str(home)})
        for name, home in homes.items()
    ]
    store = ProfileStore.load()
    async with Hub(specs, store, connect=transport_to, workload=load_workload) as hub:
        await hub.settle()
        with hung(state):
            host = await host_when(hub, "hangs", lambda one: one.state is LinkState.DEGRADED)
            assert f"{state}/eaglemon has not answered for" in host.detail
            assert "its servers are as last seen" in host.detail
            at = host.sample.at if host.sample is not None else 0.0
            # Degraded and not stale: the GPUs go on.
            await host_when(
                hub,
                "hangs",
                lambda one: (
                    one.state is LinkState.DEGRADED
                    and one.sample is not None
                    and one.sample.at > at + 1.5
                ),
            )
            fine = await host_when(hub, "fine", lambda one: True)
            assert fine.state is LinkState.UP
        await host_when(hub, "hangs", lambda one: one.state is LinkState.UP)


async def test_a_server_is_not_said_to_be_none_while_its_host_has_not_told(state: Path) -> None:
    spec = HostSpec(name="hangs", transport="local", env={"XDG_STATE_HOME": str(state)})
    store = ProfileStore.load()
    with hung(state):
        async with Hub([spec], store, connect=transport_to, workload=load_workload) as hub:
            await host_when(hub, "hangs", lambda one: "not answered for" in one.untold)
            with pytest.raises(HostError) as raised:
                hub.find("sglang")
            assert str(raised.value).startswith(
                f"hangs has not told its servers: {state}/eaglemon has not answered for"
            )
            assert status_lines(hub.snapshot())[-1] == "the servers of hangs are not known"


async def test_nothing_begins_while_the_records_hang_and_runs_are_found_again(
    state: Path,
) -> None:
    sleeps = python("import time; time.sleep(600)")
    async with linked(LocalTransport(), state) as link, watched(link) as runs:
        await link.start_run(request("one", *sleeps))
        await runs.until("one", lambda run: len(run.processes) == 1)
        with hung(state):
            await until(lambda: link.records_silent is not None)
            for call in (
                lambda: link.start_run(request("two", *sleeps)),
                lambda: link.stop_run("one", grace_s=1.0),
            ):
                async with asyncio.timeout(LIMIT_S):  # it hangs as long as this block
                    with pytest.raises(AgentError, match="has not answered for") as refused:
                        await call()
                assert refused.value.kind == "state-silent"
            assert await link.ping() > 0
        await until(lambda: link.records_silent is None)
        await link.stop_run("one", grace_s=1.0)

        def gone(run: RunStatus) -> bool:
            return bool(run.stop and run.stop.gone_at)

        await runs.until("one", gone)
        assert "two" not in runs.known


async def test_the_agent_starts_although_its_state_folder_hangs(
    state: Path, driver_folder: Path
) -> None:
    with hung(state):
        async with linked(
            LocalTransport(), state, LD_LIBRARY_PATH=str(driver_folder), FAKE_GPUS="2"
        ) as link:
            assert link.facts.state_note == f"{state}/eaglemon has not answered for 3 s"
            async with aclosing(link.watch_gpus()) as samples:
                sample = await anext(samples)
            assert len(sample.gpus) == 2
            check = await link.check_host(paths=[str(state / "model"), "/etc"])
            assert [fact.kind for fact in check.paths] == ["silent", "folder"]
            assert check.state_free_bytes is None
    async with linked(LocalTransport(), state) as link:
        assert link.facts.state_note is None


@pytest.mark.parametrize("options", [b"size=4k", b"ro"])
async def test_records_of_a_full_or_read_only_home_go_to_a_place_that_is_named(
    options: bytes, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    libc = ctypes.CDLL(None)
    assert libc.mount(b"tmpfs", str(home).encode(), b"tmpfs", 1 if options == b"ro" else 0,
                      None if options == b"ro" else options) == 0  # fmt: skip
    try:
        # Without XDG_STATE_HOME: a place that was named is never replaced.
        async with linked(LocalTransport(), Path("relative"), HOME=str(home)) as link:
            place = agent.fallback_state_dir()
            assert link.facts.state_dir == place
            usual = f"{home}/.local/state/eaglemon"
            assert link.facts.state_note == f"{usual} cannot be written: run records are in {place}"
            spec = HostSpec(
                name="here", transport="local", env={"XDG_STATE_HOME": f"{home}/.local/state"}
            )
            report = await requirements.examine(spec, (), connect=transport_to)
            (access,) = (one for one in report.requirements if one.name == "write access")
            assert access.met is False
            assert access.detail.startswith(f"{usual} cannot be written: ")
            why = "No space left on device" if options == b"size=4k" else "Read-only file system"
            assert why in access.detail
            async with watched(link) as runs:
                await link.start_run(request("full-disk-test", *python("pass")))
                status = await runs.until("full-disk-test", lambda run: run.exit is not None)
                assert status.record.log_path.startswith(place)
                await link.forget_run("full-disk-test")
    finally:
        assert libc.umount2(str(home).encode(), 2) == 0


async def test_a_home_that_hangs_is_told_without_python_too(state: Path) -> None:
    async with shell_link(state) as link, watched(link) as runs:
        await link.start_run(request("one", "sleep", "600"))
        await runs.until("one", lambda run: len(run.processes) == 1)
        with hung(state):
            await until(lambda: link.records_silent is not None)
            assert f"{state}/eaglemon has not answered for" in str(link.records_silent)
        await until(lambda: link.records_silent is None)
        assert "one" in runs.known


async def test_a_home_that_hangs_fails_the_check_of_its_host(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "WRITE_LIMIT_S", 1.0)
    spec = HostSpec(name="here", transport="local", env={"XDG_STATE_HOME": str(state)})
    with hung(state):
        report = await requirements.examine(spec, (), connect=transport_to)
    (access,) = (one for one in report.requirements if one.name == "write access")
    assert access.met is False
    assert access.detail == f"{state}/eaglemon did not answer within 1 s"
