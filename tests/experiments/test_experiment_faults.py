"""Experiments whose console is killed, cancelled, cut off, or cannot write its history."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.api import Experiments
from eaglemon.app.experiments import ExperimentService
from eaglemon.core.experiment import ExperimentPlan, StopRules
from eaglemon.core.experiment_records import Startup
from eaglemon.core.experiment_views import ExperimentView
from eaglemon.core.hosts import LinkState
from eaglemon.core.problems import Problem, Severity
from eaglemon.core.verdict import Verdict
from eaglemon.core.views import ServerState
from eaglemon.errors import ServerError, StoreError, UsageError
from eaglemon.io.store import Store
from eaglemon.report.render import markdown_report
from tests.app.test_app_late_reading import HandClock
from tests.experiments.fake_bench import HOST, FakeBench, FakeHost, Killed

STEPS = ("launch", "launched", "wait", "probe", "probed", "stop", "stopped")
NEVER_NARROW = StopRules(half_width=0.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(tmp_path / "h.sqlite3", busy_s=0.1)
    yield opened
    await opened.close()


def plan_on(
    service: ExperimentService, *names: str, restore: bool = False, keep: bool = False
) -> ExperimentPlan:
    arms = tuple(service.arm(name, HOST) for name in names or ("base", "fast"))
    return ExperimentPlan(
        id="ab-1", arms=arms, rounds=2, stop=NEVER_NARROW, restore=restore, keep=keep
    )


def kill_at(bench: FakeBench, step: str, nth: int) -> None:
    def hook(name: str) -> None:
        if name == step and bench.steps.count(step) == nth:
            raise Killed

    bench.hook = hook


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_console_is_resumed_where_it_was(store: Store, step: str, nth: int) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    kill_at(bench, step, nth)
    service = ExperimentService(bench, store)
    plan = plan_on(service)
    with pytest.raises(Killed):
        await service.run(plan)
    before = await store.experiment("ab-1")
    assert not before.under_way
    assert [one.ending for one in await store.experiments()] == ["cut off"]

    second = FakeBench(host)
    view = await ExperimentService(second, store).resume()
    assert view.outcome == "done"
    assert host.living == []
    record = await store.experiment("ab-1")
    assert [(t.arm, t.round) for t in record.trials] == [(0, 0), (1, 0), (1, 1), (0, 1)]
    # What was measured before is not measured again, and a server that came up is used.
    assert second.steps.count("probe") == 4 - len(before.trials)
    if (step, nth) in {("wait", 1), ("launched", 1), ("probe", 1), ("probed", 1)}:
        assert host.count == 3
    with pytest.raises(UsageError, match="no experiment was cut off"):
        await ExperimentService(second, store).resume()


async def test_an_experiment_of_a_living_console_is_not_taken_over(store: Store) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    bench.pause["probe"] = asyncio.Event()
    service = ExperimentService(bench, store)
    service.begin(plan_on(service))
    async with asyncio.timeout(5):
        while "probe" not in bench.steps:
            await asyncio.sleep(0.001)
    with pytest.raises(UsageError, match="under way in another console"):
        await ExperimentService(FakeBench(host), store).resume()
    assert [one.ending for one in await store.experiments()] == ["under way"]
    assert (await store.experiment("ab-1")).under_way
    await service.cancel("ab-1")
    assert [one.ending for one in await store.experiments()] == ["cancelled"]


@pytest.mark.parametrize("step", STEPS)
async def test_cancelling_leaves_no_server_behind(store: Store, step: str) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    bench.pause[step] = asyncio.Event()
    service = ExperimentService(bench, store)
    service.begin(plan_on(service, keep=True))
    async with asyncio.timeout(5):
        while step not in bench.steps:
            await asyncio.sleep(0.001)
    bench.pause.clear()
    await service.cancel("ab-1")
    assert host.living == []
    view = service.view("ab-1")
    assert view is not None
    assert view.outcome == "cancelled"
    assert (await store.experiment("ab-1")).outcome == "cancelled"


async def test_figures_are_there_after_each_round_at_the_end_and_when_it_goes_on(
    store: Store,
) -> None:
    bench = FakeBench(FakeHost())
    service = ExperimentService(bench, store)
    seen: list[ExperimentView] = []
    end = await service.run(plan_on(service), changed=seen.append)
    assert not any(view.findings is not None for view in seen if len(view.done) < 2)
    assert any(view.findings is not None and len(view.done) == 2 for view in seen)
    assert end.findings is not None
    assert [one.trials for one in end.findings.arms] == [2, 2]
    kept = service.view("ab-1")
    assert kept is not None
    assert (kept.findings, kept.outcome) == (end.findings, "done")

    bench = FakeBench(FakeHost())
    kill_at(bench, "probe", 4)
    again = ExperimentService(bench, store)
    with pytest.raises(Killed):
        await again.run(replace(plan_on(again), id="ab-2"))
    resumed: list[ExperimentView] = []
    await ExperimentService(FakeBench(bench.host), store).resume(changed=resumed.append)
    assert resumed[0].findings is not None


async def test_the_course_goes_on_while_a_server_starts_and_stops(store: Store) -> None:
    clock = HandClock(1e9)
    bench = FakeBench(FakeHost())
    service = ExperimentService(bench, store, clock=clock)
    first = service.arm("base", HOST)
    for server_id in ("before-1", "before-2"):
        start = Startup(
            server_id=server_id,
            host=HOST,
            profile="base",
            digest=first.profile.digest(),
            engine="sglang",
            launched_at=0.0,
            ready_s=40.0,
        )
        await store.add_startup(start)
    bench.pause["wait"] = asyncio.Event()
    service.begin(plan_on(service))
    await _until(lambda: "wait" in bench.steps)
    view = service.view("ab-1")
    assert view is not None
    # The server is named as soon as it is launched, and what is left is told by earlier starts.
    assert view.lanes[0].server_id == "base-1"
    assert view.remaining_s is not None
    clock.at += 7.0
    later = service.view("ab-1")
    assert later is not None
    assert later.elapsed_s == view.elapsed_s + 7.0
    assert later.remaining_s == pytest.approx(view.remaining_s - 7.0)

    bench.pause["stop"] = asyncio.Event()
    bench.pause.pop("wait").set()
    await _until(lambda: "stop" in bench.steps)
    stopping = service.view("ab-1")
    assert stopping is not None
    # The bar of the measurement before is gone, and the server that makes room is the one shown.
    assert len(stopping.done) == 1
    assert stopping.lanes[0].probe is None
    assert stopping.lanes[0].server_id == "base-1"
    bench.pause.pop("stop").set()
    await service.cancel("ab-1")


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not reached():
            await asyncio.sleep(0.001)


async def test_a_console_goes_on_in_the_background(store: Store) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    kill_at(bench, "probed", 3)
    service = ExperimentService(bench, store)
    with pytest.raises(Killed):
        await service.run(plan_on(service))
    later = ExperimentService(FakeBench(host), store)
    front: Experiments = later
    assert await later.begin_again() == "ab-1"
    async with asyncio.timeout(5):
        while (view := later.view("ab-1")) is None or not view.outcome:
            await asyncio.sleep(0.001)
    assert view.outcome == "done"
    assert [one.id for one in await front.history()] == ["ab-1"]


async def test_what_stands_against_the_arms_is_told_before(store: Store) -> None:
    bench = FakeBench(FakeHost())
    service = ExperimentService(bench, store)
    plan = plan_on(service)
    port = Problem(where="port 30000", message="in use", slug="port-in-use")
    model = Problem(where="model", message="no such file")
    note = Problem(where="/dev/shm", message="little", severity=Severity.WARNING)
    bench.standing = {"base": [port, note], "fast": [port, model]}
    told = await service.outlook(plan)
    assert told.refused == ((("base", "fast"), port), (("fast",), model))
    assert told.warned == ((("base",), note),)
    # A server that is stopped for the experiment gives its port back.
    other = bench.plan("other", HOST)
    bench.host.servers["other-1"] = replace(
        bench.view("other-1", other), state=ServerState.READY, port=plan.arms[0].profile.port
    )
    assert told.startable == 0
    told = await service.outlook(plan)
    assert told.in_the_way == ("other-1",)
    assert told.refused == ((("fast",), model),)


async def test_a_failing_and_a_crashing_arm_are_told_and_the_rest_goes_on(store: Store) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    bench.broken, bench.crashing = {"fast"}, {"slow"}
    service = ExperimentService(bench, store)
    view = await service.run(plan_on(service, "base", "fast", "slow"))
    assert view.failures[1] == "oom: CUDA out of memory"
    assert view.failures[2].startswith("crash: Traceback (none of 8 requests")
    record = await store.experiment("ab-1")
    assert [trial.arm for trial in record.trials] == [0, 0]
    assert [one.cause for one in record.startups if one.ready_s is None] == [view.failures[1]]
    assert host.living == []


async def test_what_ran_before_is_stopped_offered_back_and_restored(store: Store) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    before = await bench.launch(bench.plan("other", HOST))
    await bench.wait(before)
    service = ExperimentService(bench, store)
    plan = plan_on(service)
    outlook = await service.outlook(plan)
    assert outlook.in_the_way == (before,)
    view = await service.run(plan)
    assert host.living == []
    (offer,) = view.notes
    assert offer.startswith(f"{before} ran before; start it again with: eaglemon launch other")

    again = await bench.launch(bench.plan("other", HOST))
    await bench.wait(again)
    await store.delete("ab-1")
    view = await service.run(plan_on(service, restore=True))
    (left,) = host.living
    assert host.servers[left].profile == "other"
    assert left != again


async def test_cancelling_with_restore_brings_back_what_ran_before(store: Store) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    before = await bench.launch(bench.plan("other", HOST))
    await bench.wait(before)
    bench.pause["probe"] = asyncio.Event()
    service = ExperimentService(bench, store)
    service.begin(plan_on(service, restore=True))
    async with asyncio.timeout(5):
        while "probe" not in bench.steps:
            await asyncio.sleep(0.001)
    await service.cancel("ab-1")
    assert [host.servers[name].profile for name in host.living] == ["other"]


async def test_a_running_arm_is_measured_as_it_is_and_left_alone(store: Store) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    before = await bench.launch(bench.plan("base", HOST))
    await bench.wait(before)
    service = ExperimentService(bench, store)
    plan = ExperimentPlan(
        id="ab-1", arms=(service.arm("base", HOST, name="a"), service.arm("base", HOST)), rounds=1
    )
    await service.run(plan)
    assert host.living == [before]
    assert "stop" not in bench.steps


async def test_a_host_cut_off_during_an_arm_is_waited_for(store: Store) -> None:
    host = FakeHost()
    bench = FakeBench(host)

    def cut(name: str) -> None:
        if name == "probed" and bench.steps.count("probed") == 1:
            host.state = LinkState.DOWN
            asyncio.get_running_loop().call_later(0.05, setattr, host, "state", LinkState.UP)
            raise ServerError("the link broke")

    bench.hook = cut
    service = ExperimentService(bench, store)
    view = await service.run(plan_on(service))
    assert view.outcome == "done"
    assert view.failures == {}
    assert bench.steps.count("probe") == 5
    assert host.count == 3


async def test_a_locked_history_ends_the_experiment_without_its_servers(
    store: Store, tmp_path: Path
) -> None:
    host = FakeHost()
    bench = FakeBench(host)
    other = sqlite3.connect(tmp_path / "h.sqlite3", isolation_level=None)

    def lock(name: str) -> None:
        if name == "probed" and bench.steps.count("probed") == 2:
            other.execute("BEGIN IMMEDIATE")

    bench.hook = lock
    service = ExperimentService(bench, store)
    with pytest.raises(StoreError, match="locked"):
        await service.run(plan_on(service))
    assert host.living == []
    other.execute("ROLLBACK")
    other.close()
    view = await ExperimentService(FakeBench(host), store).resume()
    assert view.outcome == "done"
    assert len((await store.experiment("ab-1")).trials) == 4


class SteppingBack:
    """A wall clock that steps back an hour at every look."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def wall(self) -> float:
        self.at -= 3600.0
        return self.at

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def test_a_clock_that_steps_back_changes_no_result(store: Store) -> None:
    host = FakeHost()
    service = ExperimentService(FakeBench(host), store, clock=SteppingBack())
    view = await service.run(plan_on(service))
    record = await store.experiment("ab-1")
    found = await service.findings(record)
    assert found.comparisons[0].verdict is Verdict.FASTER
    assert [(t.arm, t.round) for t in record.trials] == [(0, 0), (1, 0), (1, 1), (0, 1)]
    assert view.elapsed_s >= 0
    assert "took 0.0 s" in markdown_report(record, found)
    assert all(one.state is ServerState.STOPPED for one in host.servers.values())
