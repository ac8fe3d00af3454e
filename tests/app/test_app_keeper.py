"""One keeper over a host that is made up: what it keeps running, and what its host may fail at."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eaglemon.app import health_watch
from eaglemon.app.host import Host
from eaglemon.app.keeper import Keeper
from eaglemon.core.lifecycle_events import HealthSeen, StatusSeen, TokenSeen
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.views import HealthVerdict, LaunchPlan, ServerState
from eaglemon.engines import engine_named
from eaglemon.errors import EaglemonError, HostError, TimeLimitError
from eaglemon.io.clock import SystemClock
from eaglemon.io.local import LocalTransport

LIMIT_S = 20.0
PROFILE = Profile(name="p", engine="vllm", model="m", port=1)


class QuickClock(SystemClock):
    """No pause lasts."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class AwayHost:
    """A host whose agent is away; nothing listens there."""

    spec = SimpleNamespace(name="gpu-a")
    sample = None
    clock_offset_s = 0.0
    is_silent = False
    is_up = False
    transport = LocalTransport("gpu-a")

    @property
    def link(self) -> Any:
        raise HostError("gpu-a is away")


@asynccontextmanager
async def kept(host: Any = None, profile: Profile = PROFILE) -> AsyncIterator[Keeper]:
    async def nothing(plan: LaunchPlan) -> list[Problem]:
        return []

    keeper = Keeper(
        host=host or cast("Host", AwayHost()),
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
