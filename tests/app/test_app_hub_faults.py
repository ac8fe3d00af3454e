"""What a hub does with servers whose host tells nothing of them, or tells too late."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from eaglemon.app import stopping
from eaglemon.app.broadcast import Broadcast
from eaglemon.app.host import Host
from eaglemon.app.hub import Hub
from eaglemon.app.logs import follow_log
from eaglemon.core.views import ServerState
from eaglemon.errors import HostError, ServerError, TimeLimitError, UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload
from tests.app.test_app_keeper import Agent, AwayHost, account, kept

LIMIT_S = 20.0


class SilentHost(AwayHost):
    """A host that is up, and whose records are not read."""

    async def until_up(self) -> None:
        return

    def view(self) -> SimpleNamespace:
        return SimpleNamespace(detail="/state has not answered for 40 s")


def new_hub() -> Hub:
    return Hub((), ProfileStore.load(), connect=transport_to, workload=load_workload)


def tasks() -> list[str]:
    return [one.get_name() for one in asyncio.all_tasks() if one.get_name().startswith("server:")]


async def test_a_stop_does_not_wait_for_ever_for_a_host_that_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopping, "LOST_S", 0.05)
    host = cast("Host", SilentHost())
    async with asyncio.timeout(LIMIT_S), new_hub() as hub:
        hub.runs_seen(host, [account("p-1")], (), first=True)
        hub.link_lost(host, "cut")
        for wait in (True, False):
            with pytest.raises(TimeLimitError, match=r"nothing of p-1 .* /state has not answered"):
                await hub.stop("p-1", wait=wait)


async def test_a_log_whose_host_goes_away_while_it_is_read_is_no_short_log() -> None:
    """Without ``follow``, nothing would say that it is not all."""

    class GoingHost(AwayHost):
        @property
        def link(self) -> Agent:
            agent, self.agent = super().link, None
            return agent

    host = GoingHost(Agent(TimeLimitError("unused"), known=True))
    async with kept() as keeper:
        keeper.host = cast("Host", host)
        with pytest.raises(HostError, match="gpu-a is away"):
            await anext(follow_log(keeper, Broadcast(), follow=False, tail=None))


async def test_a_run_whose_records_are_gone_is_asked_nothing_any_more() -> None:
    host = cast("Host", SilentHost())
    async with asyncio.timeout(LIMIT_S), new_hub() as hub:
        hub.runs_seen(host, [account("p-1")], (), first=True)
        assert tasks()
        waiting = asyncio.create_task(hub.wait("p-1"))
        await asyncio.sleep(0)
        hub.runs_seen(host, (), ("p-1",), first=False)
        with pytest.raises(ServerError, match="the records of p-1 are gone from gpu-a"):
            await waiting
        while tasks():
            await asyncio.sleep(0.01)
        with pytest.raises(UsageError):
            hub.find("p-1")


async def test_a_run_that_comes_after_its_launch_was_given_up_is_found_like_any_other() -> None:
    host = cast("Host", SilentHost())
    begun = account("p-1")
    late = replace(begun, processes=(), record=replace(begun.record, pid=None))
    async with asyncio.timeout(LIMIT_S), new_hub() as hub:
        hub.runs_seen(host, [late], (), first=True)
        hub.link_lost(host, "cut")
        hub.runs_seen(host, (), (), first=True)
        assert hub.find("p-1").state is ServerState.FAILED
        hub.runs_seen(host, [begun], (), first=False)
        assert hub.find("p-1").state is ServerState.STARTING
        assert hub.find("p-1").pid == 7
