"""A host's supervision goes on, whatever breaks under it, and says what did."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from eaglemon.app import host as host_module
from eaglemon.app.host import Host, HostListener
from eaglemon.core.hosts import HostSpec, LinkState
from eaglemon.errors import AgentError, HostError
from eaglemon.io.clock import SystemClock
from eaglemon.io.local import LocalTransport
from eaglemon.io.transport import Transport

LIMIT_S = 20.0


class Deaf:
    """A listener that takes everything and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@asynccontextmanager
async def supervised(connect: Callable[[HostSpec], Transport]) -> AsyncIterator[Host]:
    host = Host(
        HostSpec(name="gpu-a"),
        connect=connect,
        listener=cast("HostListener", Deaf()),
        clock=SystemClock(),
    )
    task = asyncio.create_task(host.run())
    try:
        async with asyncio.timeout(LIMIT_S):
            yield host
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_mistake_of_ours_is_told_and_the_host_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries: list[HostSpec] = []

    def connect(spec: HostSpec) -> Transport:
        tries.append(spec)
        raise KeyError("uid 12345")

    async with supervised(connect) as host:
        with pytest.raises(HostError, match="internal error: KeyError: 'uid 12345'"):
            await host.until_up()
        assert host.view().state is LinkState.DOWN
        while len(tries) < 2:
            host.retry()
            await asyncio.sleep(0.01)
    assert "gpu-a: its connection ended unexpectedly" in caplog.text


async def test_the_next_step_is_the_hint_of_what_a_host_that_is_away_is_told_with() -> None:
    def connect(spec: HostSpec) -> Transport:
        raise HostError(f"{spec.name}: it does not let b in", hint="run ssh-add")

    async with supervised(connect) as host:
        with pytest.raises(HostError, match=r"^gpu-a is \w+: it does not let b in; ") as found:
            await host.until_up()
        assert (found.value.message.partition(": ")[2], found.value.hint) == (
            "it does not let b in",
            "run ssh-add",
        )
        assert host.view().detail == "it does not let b in; run ssh-add"
        assert host.view().hint == "run ssh-add"


async def test_a_link_that_does_not_tell_the_time_was_never_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Link:
        closed = 0
        facts: Any = None

        async def ping(self) -> float:
            raise AgentError("gpu-a did not tell the time", kind="protocol")

        async def close(self) -> None:
            self.closed += 1

    link = Link()

    async def open_link(*_: object) -> Link:
        return link

    monkeypatch.setattr(host_module, "open_link", open_link)
    async with supervised(lambda _: LocalTransport("gpu-a")) as host:
        with pytest.raises(HostError, match="did not tell the time"):
            await host.until_up()
        assert not host.is_up
        assert link.closed == 1


async def test_a_link_that_has_ended_is_down_with_its_reason_while_it_is_being_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, is_closing, may_close = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Link:
        facts: Any = None

        async def ping(self) -> float:
            return 0.0

        async def closed(self) -> str:
            await ended.wait()
            return "gpu-a: the connection was closed"

        async def watch_runs(self) -> AsyncIterator[Any]:
            await asyncio.Event().wait()
            yield

        async def watch_gpus(self, **_: float) -> AsyncIterator[Any]:
            await asyncio.Event().wait()
            yield

        async def close(self) -> None:
            is_closing.set()
            await may_close.wait()

    async def open_link(*_: object) -> Link:
        return Link()

    monkeypatch.setattr(host_module, "open_link", open_link)
    async with supervised(lambda _: LocalTransport("gpu-a")) as host:
        while not host.is_up:
            await asyncio.sleep(0.01)
        ended.set()
        await is_closing.wait()
        assert host.view().state is LinkState.DOWN
        with pytest.raises(HostError, match=r"^gpu-a is down: the connection was closed$"):
            _ = host.link
        may_close.set()
