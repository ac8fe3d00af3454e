"""How long a restart waits for GPU memory: never for what somebody else holds."""

from dataclasses import replace

import pytest

from eaglemon.app.restarting import restart
from eaglemon.core.hosts import GpuProcess
from eaglemon.core.views import LaunchPlan, ServerState, ServerView, Snapshot
from eaglemon.errors import LaunchRefusedError
from tests.tui import snapshots
from tests.tui.fake_console import FakeConsole

REFUSED = "port 30000: in use"


class Console(FakeConsole):
    """Its launches are refused; ``looks`` are counted, and the memory is back with the last."""

    looks = 0
    free: Snapshot | None = None

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> LaunchPlan:
        return self.plan("k25-eagle3", self.find(server_id).host)

    def snapshot(self) -> Snapshot:
        self.looks += 1
        if self.looks > 2:
            assert self.free is not None, "it waits for what is not given back"
            return self.free
        return self.now


def old() -> ServerView:
    ready = snapshots.ready()
    return replace(ready, id="run-old", state=ServerState.STOPPED, pids=(), gpu_indexes=(0,))


def holding(servers: tuple[ServerView, ...], process: GpuProcess | None) -> Snapshot:
    """Return the fleet with 100 GiB of GPU 0 in use, sampled after the end of the old server."""
    host = snapshots.FLEET.hosts[0]
    assert host.sample is not None
    first = replace(host.sample.gpus[0], memory_used_bytes=100 * 2**30)
    processes = () if process is None else (replace(process, gpu_uuid=first.uuid),)
    rest = tuple(replace(gpu, memory_used_bytes=0) for gpu in host.sample.gpus[1:])
    sample = replace(host.sample, gpus=(first, *rest), processes=processes)
    up = replace(host, sample=sample, sample_age_s=0.0)
    ended_at = max(one.launched_at + one.age_s for one in servers)
    return replace(snapshots.FLEET, at=ended_at + 5.0, hosts=(up,), servers=servers)


@pytest.mark.parametrize(
    ("successor", "process"),
    [
        (True, None),
        (False, GpuProcess(gpu_uuid="", pid=7, command="python train.py")),
        (False, GpuProcess(gpu_uuid="", pid=7, command="python -m x", run_id="run-other")),
    ],
)
async def test_what_another_holds_is_told_at_once(
    *, successor: bool, process: GpuProcess | None
) -> None:
    servers = (old(), snapshots.ready()) if successor else (old(),)
    console = Console(holding(servers, process), launch_error=LaunchRefusedError(REFUSED))
    told: list[str] = []
    with pytest.raises(LaunchRefusedError, match=REFUSED):
        await restart(console, "run-old", grace_s=None, told=told.append)
    assert told == []


@pytest.mark.parametrize(
    "process", [None, GpuProcess(gpu_uuid="", pid=7, command="sglang", run_id="run-old")]
)
async def test_what_the_old_one_leaves_is_waited_for_and_that_is_told(
    process: GpuProcess | None,
) -> None:
    now = holding((old(),), process)
    console = Console(now)
    host = now.hosts[0]
    assert host.sample is not None
    gpus = tuple(replace(gpu, memory_used_bytes=0) for gpu in host.sample.gpus)
    free = replace(host, sample=replace(host.sample, gpus=gpus, processes=()))
    console.free = replace(now, hosts=(free,))
    told: list[str] = []
    await restart(console, "run-old", grace_s=None, told=told.append)
    assert console.calls[-1] == ("launch", "k25-eagle3", host.spec.name, False)
    limit_s = console.relaunch_plan("run-old").profile.limits.release_s
    assert told == [f"waiting for GPU memory on {host.spec.name}, up to {limit_s:g} s"]
