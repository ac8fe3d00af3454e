"""Stored runs on the command line and in the service: compared, reported, remembered by profile."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.experiments import ExperimentService
from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.experiment_records import Environment, Startup
from eaglemon.errors import UsageError
from eaglemon.io.store import Store
from tests.cli.conftest import CommandLine, home, run
from tests.experiments.arms import arm
from tests.stats.trials import trial
from tests.tui.fake_console import FakeConsole
from tests.tui.snapshots import FLEET, ready

__all__ = ["home", "run"]

SPEEDS = tuple(90.0 + n for n in range(12))


async def fill(store: Store) -> None:
    """Store three runs: the second is faster, the third was asked with more at a time."""
    for number, (name, factor, at_a_time) in enumerate(
        (("ab-a", 1.0, 1), ("ab-b", 1.25, 1), ("ab-c", 1.0, 4))
    ):
        arms = (arm("base", concurrency=at_a_time), arm("eagle", steps=3, concurrency=at_a_time))
        await store.begin(ExperimentPlan(id=name, arms=arms), at=1000.0 + number * 60)
        for index in (0, 1):
            env = Environment(host="gpu-a", engine="sglang", gpus=("H200",), driver_version="580")
            await store.note_environment(name, index, env)
            for round_ in (0, 1):
                speeds = [speed * factor * (1 + index) for speed in SPEEDS]
                await store.add_trial(name, trial(index, round_, speeds, accepted=150 * index))
        await store.finish(name, "done", at=2000.0 + number * 60)
    await store.add_startup(
        Startup(
            server_id="s1",
            host="gpu-a",
            profile="eagle",
            digest="d",
            engine="sglang",
            launched_at=900.0,
            ready_s=42.0,
        )
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    one = Store(tmp_path / "history.sqlite3")
    await fill(one)
    yield one
    await one.close()


async def filled() -> None:
    one = Store()
    await fill(one)
    await one.close()


def test_runs_are_compared_on_the_command_line(run: CommandLine) -> None:
    asyncio.run(filled())
    result = run("runs", "compare", "ab-b", "ab-a")
    assert result.code == 0
    assert "ab-a, then ab-b" in result.out
    assert "ab-b:eagle is faster than ab-a:eagle: 1.25 x" in result.out
    result = run("runs", "compare", "ab-a:base", "ab-a:eagle")
    assert "steps" in result.out
    assert "ab-a:eagle is faster than ab-a:base: 2.00 x" in result.out
    result = run("runs", "compare", "ab-a", "ab-c")
    assert result.code == 1
    assert "not a fair comparison: they were asked differently" in result.out
    assert "faster" not in result.out
    document = json.loads(run("runs", "compare", "ab-a", "ab-b", "--json").out)
    pairs = document["comparison"]["pairs"]
    assert [pair["comparison"]["verdict"] for pair in pairs] == ["faster", "faster"]
    result = run("runs", "compare", "ab-a:none", "ab-b")
    assert result.code == 2
    assert "has no arm 'none'" in result.err


async def test_the_service_compares_reports_and_remembers(store: Store, tmp_path: Path) -> None:
    service = ExperimentService(FakeConsole(FLEET), store)
    found = await service.compare("ab-b", "ab-a")
    assert found.runs == ("ab-a", "ab-b")
    first = await service.write_report("ab-a", tmp_path)
    second = await service.write_report("ab-a", tmp_path)
    assert (first.name, second.name) == ("ab-a.html", "ab-a-2.html")
    assert "<svg" in first.read_text()
    with pytest.raises(UsageError, match="cannot be written: no such file"):
        await service.write_report("ab-a", tmp_path / "missing")
    history = await service.profile_history("eagle")
    assert [start.ready_s for start in history.starts] == [42.0]
    assert [one.run for one in history.measured] == ["ab-c", "ab-b", "ab-a"]
    assert all(one.accept_length == 2.5 for one in history.measured)


async def test_a_running_server_is_told_what_one_started_alike_has_shown(store: Store) -> None:
    service = ExperimentService(FakeConsole(FLEET), store)
    shell_line = (await store.experiment("ab-c")).plan.arms[1].shell_line
    mine = replace(ready(), host="gpu-a", command_line=shell_line)
    found = await service.worth(mine)
    assert found is not None
    assert (found.run, found.concurrency, found.at) == ("ab-c", 4, 2120.0)
    assert found.told.startswith("eagle is faster than base: 2.00 x")
    assert found.break_even == pytest.approx(2.5 / 2)
    assert await service.worth(replace(mine, command_line="serve otherwise")) is None
    assert await service.worth(replace(mine, host="gpu-b")) is None
    base = (await store.experiment("ab-c")).plan.arms[0].shell_line
    told = await service.worth(replace(mine, command_line=base))
    assert told is not None
    assert told.break_even is None
