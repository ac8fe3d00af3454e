"""One keeper over a host that is made up: what it keeps running, and what its host may fail at."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from eaglemon.app import health_watch
from eaglemon.app.host import Host
from eaglemon.app.keeper import Keeper
from eaglemon.app.late_runs import never_began
from eaglemon.core.lifecycle import NOT_STARTED
from eaglemon.core.lifecycle_events import HealthSeen, StatusSeen, TokenSeen
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Hooks, Profile
from eaglemon.core.runs import RunProcess, RunRecord, RunRequest, RunStatus, RunStop
from eaglemon.core.views import HealthVerdict, LaunchPlan, ServerState
from eaglemon.engines import engine_named
from eaglemon.errors import AgentError, EaglemonError, HostError, TimeLimitError
from eaglemon.io.clock import SystemClock
from eaglemon.io.local import LocalTransport

LIMIT_S = 20.0
PROFILE = Profile(name="p", engine="vllm", model="m", port=1)


class QuickClock(SystemClock):
    """No pause lasts."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Agent:
    """A link whose requests end as they are told to; ``known`` tells whether there is a run."""

    def __init__(self, ends: EaglemonError, *, known: bool = False) -> None:
        self.ends, self.known = ends, known
        self.hooks = asyncio.Event()
        """Set once the hooks of a launch run, which never end."""

    async def start_run(self, request: RunRequest) -> RunRecord:
        raise self.ends

    async def stop_run(self, run_id: str, *, grace_s: float) -> None:
        raise self.ends

    async def log_tail(self, run_id: str, *, lines: int) -> int:
        if not self.known:
            raise AgentError("there is no such run", kind="no-such-run")
        return 0

    async def run_program(self, *_: object, **__: object) -> AsyncGenerator[Mapping[str, object]]:
        self.hooks.set()
        await asyncio.Event().wait()
        yield {}


class AwayHost:
    """A host whose agent is away; nothing listens there."""

    spec = SimpleNamespace(name="gpu-a")
    sample = None
    clock_offset_s = 0.0
    is_silent = False
    is_up = False
    transport = LocalTransport("gpu-a")

    def __init__(self, agent: Agent | None = None) -> None:
        self.agent = agent

    @property
    def link(self) -> Agent:
        if self.agent is None:
            raise HostError("gpu-a is away")
        return self.agent


@asynccontextmanager
async def kept(agent: Agent | None = None, profile: Profile = PROFILE) -> AsyncIterator[Keeper]:
    async def nothing(plan: LaunchPlan) -> list[Problem]:
        return []

    keeper = Keeper(
        host=cast("Host", AwayHost(agent)),
        engine=engine_named(profile.engine),
        profile=profile,
        clock=QuickClock(),
        changed=lambda: None,
        check=nothing,
    )
    try:
        yield keeper
    finally:
        await keeper.close()


async def test_a_pulse_that_makes_its_server_ready_again_stays_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = TimeLimitError("no token")
    answers: list[EaglemonError | None] = [failed, failed, None, failed, failed, None]
    asked_all = asyncio.Event()

    async def ask(*_: object, **__: object) -> None:
        if not answers:
            asked_all.set()
            await asyncio.Event().wait()
        elif (answer := answers.pop(0)) is not None:
            raise answer

    async def no_poll(self: object, after_s: float) -> None:
        """The health path says nothing here: the pulse alone does."""

    monkeypatch.setattr(health_watch, "ask_token", ask)
    monkeypatch.setattr(health_watch.HealthWatch, "poll", no_poll)
    async with asyncio.timeout(LIMIT_S), kept() as keeper:
        for event in (StatusSeen(living=1), HealthSeen(verdict=HealthVerdict.OK), TokenSeen()):
            keeper.feed(event)
        await asked_all.wait()
        changes = [(before, after) for before, _, after in keeper.machine.story]
        assert changes.count((ServerState.UNHEALTHY, ServerState.READY)) == 2
        pulses = [task for task in asyncio.all_tasks() if task.get_name() == "server: pulse"]
        assert len(pulses) == 1
        keeper.link_lost("gone")
        await asyncio.wait(pulses)


def launch(keeper: Keeper) -> None:
    plan = LaunchPlan(
        host="gpu-a", profile=keeper.profile, argv=("serve",), env={}, shell_line="serve"
    )
    keeper.launch(plan, force=True)


async def reached(keeper: Keeper, state: ServerState) -> None:
    async with asyncio.timeout(LIMIT_S):
        while keeper.state is not state:
            await asyncio.sleep(0)


def account(run_id: str) -> RunStatus:
    """Return the host's account of a run with one process."""
    record = RunRecord(
        id=run_id,
        name="p",
        profile="p",
        digest="",
        engine="vllm",
        address="127.0.0.1",
        port=1,
        argv=("serve",),
        env={},
        workdir=None,
        gpu_indexes=(),
        gpu_uuids=(),
        gpu_used_before_bytes=None,
        extra={},
        launched_at=time.time(),
        boot_id="b",
        log_path="server.log",
        pid=7,
    )
    living = RunProcess(pid=7, start_ticks=1, command="serve", state="S")
    return RunStatus(record=record, processes=(living,))


@pytest.mark.parametrize(
    "ends", [TimeLimitError("no answer"), AgentError("not yet", kind="spawn-late")]
)
async def test_a_start_without_an_answer_is_lost_until_the_host_tells_of_it(
    ends: EaglemonError,
) -> None:
    async with kept(Agent(ends, known=True)) as keeper:
        launch(keeper)
        await reached(keeper, ServerState.LOST)
        assert keeper.machine.detail == str(ends)
        keeper.status_seen(account(keeper.id))
        assert keeper.state is ServerState.STARTING

    async with kept(Agent(ends)) as keeper:
        launch(keeper)
        await reached(keeper, ServerState.FAILED)
        assert "never arrived" in keeper.machine.detail
        assert never_began(keeper)


async def test_a_start_that_was_refused_has_failed() -> None:
    refused = AgentError("no such program", kind="spawn-failed")
    async with kept(Agent(refused)) as keeper:
        launch(keeper)
        await reached(keeper, ServerState.FAILED)
        assert keeper.refused is refused


async def test_a_stop_without_an_answer_is_told_and_goes_on_when_the_host_tells_of_it() -> None:
    async with kept(Agent(TimeLimitError("no answer"))) as keeper:
        keeper.adopt(account("p-1"))
        keeper.stop(1.0)
        await reached(keeper, ServerState.UNHEALTHY)
        assert keeper.machine.detail == "no answer"
        assert keeper.seen.broken == {}
        stop = RunStop(requested_at=1.0, grace_s=1.0)
        keeper.status_seen(replace(account("p-1"), stop=stop))
        assert keeper.state is ServerState.STOPPING


async def test_a_stop_while_its_hooks_run_starts_nothing() -> None:
    agent = Agent(TimeLimitError("it was asked to start"))
    profile = replace(PROFILE, hooks=Hooks(before_launch=("sleep 60",)))
    async with asyncio.timeout(LIMIT_S), kept(agent, profile) as keeper:
        launch(keeper)
        await agent.hooks.wait()
        keeper.stop(1.0)
        assert keeper.state is ServerState.FAILED
        assert keeper.machine.detail == f"{NOT_STARTED}; a hook that had begun ends by itself"
