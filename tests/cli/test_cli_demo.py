from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from eaglemon.cli import demo
from eaglemon.cli.demo_script import Step, main_job
from eaglemon.core.hosts import HostSpec
from eaglemon.core.phases import Phase
from eaglemon.core.views import PhaseState, PhaseView
from eaglemon.errors import ServerError
from eaglemon.io.config import ProfileStore
from tests.cli.conftest import CommandLine
from tests.cli.fake_console import FakeConsole, failed, probe, server, stopped

HOST = HostSpec(name="gpu-a")
NAMES = ["gpus", "launch", "ready", "probe", "kill", "memory-back"]


@pytest.fixture
def console(home: Path) -> FakeConsole:
    fake = FakeConsole((HOST,), ProfileStore.load())
    fake.used_bytes = 0
    return fake


async def steps_of(console: FakeConsole) -> list[Step]:
    ticks = count()
    return [
        step
        async for step in main_job(console, "gpu-a", clock=lambda: float(next(ticks)), port=31234)
    ]


async def test_each_step_is_told_with_its_time(console: FakeConsole) -> None:
    steps = await steps_of(console)
    assert [step.name for step in steps] == NAMES
    assert all(step.ok and step.took_s == 1.0 for step in steps)
    assert console.called("plan") == [{"port": "31234"}]
    assert steps[3].figures["accept_length"] == 2.8


async def test_a_failed_start_ends_the_job_and_is_cleaned_up(console: FakeConsole) -> None:
    console.waited = failed()
    steps = await steps_of(console)
    assert [(step.name, step.ok) for step in steps] == [
        ("gpus", True),
        ("launch", True),
        ("ready", False),
        ("clean-up", True),
    ]
    assert "CUDA out of memory" in steps[2].summary


async def test_a_refused_launch_leaves_nothing_to_clean_up(console: FakeConsole) -> None:
    console.launch_error = ServerError("port in use")
    assert [step.name for step in await steps_of(console)] == ["gpus", "launch"]


async def test_a_phase_that_did_not_show_is_a_failure(console: FakeConsole) -> None:
    missed = PhaseView(phase=Phase.KV_CACHE, state=PhaseState.SKIPPED)
    console.waited = server(phases=(missed,))
    steps = await steps_of(console)
    assert "did not show: KV cache" in steps[2].summary


async def test_a_probe_with_failed_requests_is_a_failure(console: FakeConsole) -> None:
    console.probed = lambda plan: probe(plan, ok=1)
    steps = await steps_of(console)
    assert (steps[3].ok, steps[-1].name) == (False, "clean-up")


async def test_memory_that_is_not_back_is_a_failure(console: FakeConsole) -> None:
    console.stop_result = stopped(proven=False)
    steps = await steps_of(console)
    assert [step.ok for step in steps][-2] is False


def test_the_command_runs_the_script_where_there_is_no_terminal(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Simulated:
        @asynccontextmanager
        async def __call__(self) -> AsyncIterator[HostSpec]:
            yield HOST

    monkeypatch.setattr(demo, "SimHost", Simulated())

    def empty(console: FakeConsole) -> None:
        console.used_bytes = 0

    result = run("demo", prepare=empty)
    assert result.code == 0
    assert "every step held" in result.out
    assert "no terminal here" in result.err
    document = run("demo", "--headless", "--json").document
    assert document["ok"] is True
    assert [step["name"] for step in document["steps"]] == NAMES

    def fails(console: FakeConsole) -> None:
        console.waited = failed()

    assert run("demo", "--headless", prepare=fails).code == 1
