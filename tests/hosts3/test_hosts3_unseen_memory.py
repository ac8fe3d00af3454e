"""A stop on a host whose driver does not tell: unknown memory is never told as none."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eaglemon.app import memory
from eaglemon.app.preflight import gpu_problems
from eaglemon.app.seen import Seen
from eaglemon.app.stop_account import waits_for
from eaglemon.core.hosts import GpuProcess, GpuSample, HostSample
from eaglemon.core.lifecycle import ServerMachine
from eaglemon.core.lifecycle_events import Event, MemoryBack, MemoryUnseen, StatusSeen
from eaglemon.core.profiles import Limits
from eaglemon.core.runs import RunExit, RunStop
from eaglemon.core.views import ServerState
from eaglemon.sim.host import SimHost
from tests.cases4.conftest import Desk, console

GPU = GpuSample(index=0, uuid="GPU-a", memory_used_bytes=0)
SEEN = HostSample(at=2.0, gpus=(GPU,))
MISMATCH = "Driver/library version mismatch"
NO_LIBRARY = "NVML Shared Library Not Found"


@dataclass
class Link:
    """Gives samples, and then no more."""

    samples: list[HostSample]

    async def watch_gpus(self, **_: object) -> AsyncGenerator[HostSample, None]:
        while self.samples:
            yield self.samples.pop(0)


@dataclass
class Run:
    """A run whose processes 10 and 11 have gone."""

    samples: list[HostSample]
    record: Any = None
    changed: Callable[[], None] = field(default=lambda: None)
    told: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = ServerMachine(Limits())
        self.seen = Seen(pids_ever={10, 11})
        self.host: Any = self
        self.link = Link(self.samples)

    def take(self, sample: HostSample) -> None:
        pass

    def feed(self, event: Event) -> None:
        self.told.append(event)


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ([SEEN], MemoryBack()),
        ([HostSample(at=2.0, driver_error=MISMATCH), SEEN], MemoryBack()),
        (
            [HostSample(at=2.0, driver_error=NO_LIBRARY)],
            MemoryUnseen(
                reason=f"{NO_LIBRARY}; install the NVIDIA driver, or use this host without GPU "
                "readings",
                no_driver=True,
            ),
        ),
        (
            [HostSample(at=2.0, gpus=(GPU,), processes_known=False)],
            MemoryUnseen(reason="the driver lists no processes"),
        ),
        ([], MemoryUnseen(reason="no sample of the GPUs has come")),
    ],
)
async def test_who_held_nothing_and_who_was_not_seen(
    samples: list[HostSample], told: Event
) -> None:
    run = Run(samples=list(samples))
    await memory.watch_release(run)
    assert run.told == [told]


async def test_a_process_that_the_driver_still_lists_is_waited_for() -> None:
    listed = HostSample(at=2.0, gpus=(GPU,), processes=(GpuProcess(gpu_uuid="GPU-a", pid=11),))
    run = Run(samples=[listed, listed, SEEN])
    await memory.watch_release(run)
    assert run.told == [MemoryBack()]
    assert run.seen.held_uuids == {"GPU-a"}


async def test_memory_that_may_be_of_others_ends_a_stop_unproven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "UNSEEN_S", 0.0)
    gpu = GpuSample(index=0, uuid="GPU-a", memory_used_bytes=30 * 1024**3)
    mine = (GpuProcess(gpu_uuid="GPU-a", pid=11),)
    shared = HostSample(at=2.0, gpus=(gpu,), processes=(GpuProcess(gpu_uuid="GPU-a", pid=99),))
    run = Run(samples=[replace(shared, processes=mine), shared, shared, SEEN])
    await memory.watch_release(run)
    reason = "how much PID 99 holds, which is not of this run, is not told"
    assert run.told == [MemoryUnseen(reason=reason)]
    assert run.seen.release is not None
    assert waits_for(run.seen.release) == f"waiting for GPU memory: {reason}"


async def test_memory_that_is_back_first_waits_for_the_end_of_the_account() -> None:
    begun = RunStop(requested_at=1.0, grace_s=1.0, term_sent_at=1.0, term_count=2)
    run = Run(samples=[SEEN])
    # The exit was seen, and not yet that no process is left.
    run.machine.enter(ServerState.RELEASING)
    run.machine.stop = begun
    watching = asyncio.create_task(memory.watch_release(run))
    while run.samples:
        await asyncio.sleep(0)
    assert run.told == []
    gone = StatusSeen(living=0, exit=RunExit(code=0), stop=replace(begun, gone_at=2.0))
    assert run.machine.handle(gone) == []
    await watching
    assert run.told == [MemoryBack()]


def test_a_gpu_that_has_failed_stands_against_a_launch() -> None:
    lost = GpuSample(index=0, uuid="GPU-a", error="GPU is lost")
    beside = GpuSample(index=1, uuid="GPU-b", error="no reading while GPU 0000:01:00.0 is lost")
    silent = GpuSample(index=2, uuid="GPU-c")

    class Plan:
        host = "a"

        class profile:  # noqa: N801 -- stands in for an attribute
            gpus = (0, 1, 2)

    plan: Any = Plan()
    found = gpu_problems(plan, HostSample(at=1.0, gpus=(lost, beside, silent)))
    assert [(one.where, one.slug) for one in found] == [
        ("GPU 0", "gpu-unreadable"),
        ("GPU 1", "gpu-memory-unknown"),
        ("GPU 2", "gpu-memory-unknown"),
    ]


async def test_a_server_that_ran_beside_a_broken_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "UNSEEN_S", 0.5)
    sim = SimHost(speed=30.0)
    async with sim as spec:
        (sim.driver_folder / "mismatch").touch()
        async with console(spec) as hub:
            await hub.settle()
            desk = Desk(hub, spec, sim)
            server = await desk.start(settings={"gpus": "none"})
            await desk.ready(server)
            view = await hub.stop(server, grace_s=2.0)
    assert view.state is ServerState.STOPPED
    assert view.detail.startswith("processes are gone; GPU memory cannot be seen: ")
    assert "version mismatch" in view.detail
    assert view.stop is not None
    assert not view.stop.proven
    assert "mismatch" in view.stop.memory_unseen
    assert view.stop.memory_to_release_bytes is None
    assert view.stop.steps[-1] == view.detail
    assert not any("no GPU memory" in step for step in view.stop.steps)
