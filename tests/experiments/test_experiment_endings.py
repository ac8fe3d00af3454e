"""What ends an experiment early: asked for twice, an error in one lane, a stop without an end."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.experiment_servers import ExperimentServers
from eaglemon.app.experiments import ExperimentService
from eaglemon.core.experiment import ExperimentPlan, StopRules
from eaglemon.core.experiment_views import ExperimentView
from eaglemon.core.hosts import GpuSample, HostSample
from eaglemon.core.views import LaunchPlan, ServerState, Snapshot
from eaglemon.errors import LaunchRefusedError, StoreError, TimeLimitError
from eaglemon.io.store import Store
from tests.experiments.fake_bench import HOST, FakeBench, FakeHost

LIMIT_S = 30.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(tmp_path / "h.sqlite3", busy_s=0.1)
    yield opened
    await opened.close()


def plan_on(service: ExperimentService, *, parallel: bool = False) -> ExperimentPlan:
    arms = [service.arm(name, HOST) for name in ("base", "fast")]
    if parallel:
        apart = replace(arms[1].profile, port=30001, gpus=(1,))
        arms[1] = replace(arms[1], profile=apart)
    return ExperimentPlan(
        id="ab-1", arms=tuple(arms), rounds=2, stop=StopRules(half_width=0.0), parallel=parallel
    )


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not reached():
            await asyncio.sleep(0.001)


def paused(host: FakeHost) -> FakeBench:
    """Return a bench that ends no probe and no stop until it is told to."""
    bench = FakeBench(host)
    bench.pause = {"probe": asyncio.Event(), "stop": asyncio.Event()}
    return bench


async def interrupted(bench: FakeBench, store: Store) -> asyncio.Task[ExperimentView]:
    """Return an experiment that was cancelled in a probe and now stops its server."""
    service = ExperimentService(bench, store)
    task = asyncio.create_task(service.run(plan_on(service)))
    await until(lambda: "probe" in bench.steps)
    task.cancel()
    await until(lambda: "stop" in bench.steps)
    return task


async def test_cancelling_again_waits_for_the_clean_up_that_runs(store: Store) -> None:
    host = FakeHost()
    bench = paused(host)
    service = ExperimentService(bench, store)
    service.begin(plan_on(service))
    await until(lambda: "probe" in bench.steps)
    first = asyncio.create_task(service.cancel("ab-1"))
    await until(lambda: "stop" in bench.steps)
    # x once more, whoever asked first stops waiting, and the console is left.
    again = asyncio.create_task(service.cancel("ab-1"))
    first.cancel()
    left = asyncio.create_task(service.close())
    await asyncio.wait({first})
    await asyncio.sleep(0.01)
    assert (await store.experiment("ab-1")).outcome == ""
    assert not again.done()
    assert not left.done()
    bench.pause["stop"].set()
    await asyncio.gather(again, left)
    assert host.living == []
    assert (await store.experiment("ab-1")).outcome == "cancelled"


async def test_a_second_interrupt_does_not_break_off_the_clean_up(store: Store) -> None:
    host = FakeHost()
    bench = paused(host)
    task = await interrupted(bench, store)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    bench.pause["stop"].set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.living == []
    assert (await store.experiment("ab-1")).outcome == "cancelled"


async def test_a_clean_up_that_is_ended_by_force_can_be_gone_on_with(store: Store) -> None:
    host = FakeHost()
    bench = paused(host)
    task = await interrupted(bench, store)
    # As asyncio does it where the second Ctrl-C comes: all tasks are cancelled.
    for one in asyncio.all_tasks() - {asyncio.current_task()}:
        one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.living == ["base-1"]
    assert (await store.experiment("ab-1")).outcome == ""
    assert (await ExperimentService(FakeBench(host), store).resume()).outcome == "done"
    assert host.living == []


async def test_an_error_in_one_of_two_lanes_is_told_in_its_own_words(store: Store) -> None:
    bench = FakeBench(FakeHost())

    def full(name: str) -> None:
        if name == "launch":
            raise StoreError("the history: the disk is full")

    bench.hook = full
    service = ExperimentService(bench, store)
    plan = plan_on(service, parallel=True)
    service.begin(plan)
    await until(lambda: (view := service.view("ab-1")) is not None and view.outcome == "failed")
    view = service.view("ab-1")
    assert view is not None
    assert view.notes[-1] == "the history: the disk is full"
    with pytest.raises(StoreError, match="disk is full"):
        await service.run(replace(plan, id="ab-2"))


async def test_a_server_that_does_not_stop_in_time_fails_the_arm_that_needs_its_place(
    store: Store,
) -> None:
    bench = FakeBench(FakeHost())

    def hang(name: str) -> None:
        if name == "stop" and bench.steps.count("stop") == 1:
            raise TimeLimitError("base-1 is still stopping")

    bench.hook = hang
    service = ExperimentService(bench, store)
    view = await service.run(plan_on(service))
    assert view.failures == {1: "base-1 is still stopping"}
    assert [(leg.arm, leg.round) for leg in view.done] == [(0, 0), (0, 1)]
    assert view.outcome == "done"


async def test_a_history_that_cannot_be_written_keeps_no_server_running(
    store: Store, tmp_path: Path
) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    service = ExperimentService(bench, store)
    plan = plan_on(service)
    await store.begin(plan, at=0.0)
    for index, arm in enumerate(plan.arms):
        intent = await store.note_launch(plan.id, index, arm, frozenset())
        name = f"{arm.name}-{index}"
        await store.note_launched(intent, name)
        view = bench.view(name, bench.plan(arm.name, HOST))
        host.servers[name] = replace(view, state=ServerState.READY)
    servers = ExperimentServers(bench, store, plan, await store.experiment(plan.id))
    other = sqlite3.connect(tmp_path / "h.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await servers.clear({0, 1})
    assert host.living == []
    other.execute("ROLLBACK")
    other.close()


class Draining(FakeBench):
    """A host whose driver keeps the memory of a server that failed for a while."""

    looks = 0

    def snapshot(self) -> Snapshot:
        """Return a picture from before the failure, then one with its memory, then one without."""
        plain = super().snapshot()
        if any(view.state is ServerState.FAILED for view in plain.servers):
            self.looks += 1
        gpu = GpuSample(
            index=0,
            uuid="GPU-0",
            memory_used_bytes=(17 << 30) if 3 <= self.looks < 6 else 0,
            memory_total_bytes=140 << 30,
        )
        sample = HostSample(at=0.0, gpus=(gpu,))
        # Servers of the bench are launched at 100 and fail at once.
        age_s = 20.0 if self.looks < 3 else 1.0
        hosts = tuple(replace(host, sample=sample, sample_age_s=age_s) for host in plain.hosts)
        return replace(plain, at=110.0, hosts=hosts)

    def plan(
        self, profile: str, host: str, overrides: Mapping[str, str] | None = None
    ) -> LaunchPlan:
        # The next step of the experiment is a launch: from here on time goes by.
        self.looks = 0
        return super().plan(profile, host, overrides)

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        if 0 < self.looks < 6:
            raise LaunchRefusedError("GPU 0: 17.0 GiB of 140.0 GiB are in use")
        return await super().launch(plan, force=force)


async def test_an_arm_after_one_that_failed_waits_for_the_memory_of_that(store: Store) -> None:
    bench = Draining(FakeHost())
    bench.broken = {"fast"}
    service = ExperimentService(bench, store)
    view = await service.run(plan_on(service))
    assert view.failures == {1: "oom: CUDA out of memory"}
    assert [(leg.arm, leg.round) for leg in view.done] == [(0, 0), (0, 1)]
