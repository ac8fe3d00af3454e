"""A log that cannot be read: nothing waits for it, and the server says so."""

from pathlib import Path

import pytest

from eaglemon.app.hub import Hub
from eaglemon.app.tasks import TaskBag
from eaglemon.core.logs import LogReader
from eaglemon.core.phases import LogEvent
from eaglemon.core.views import ServerState, ServerView
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload
from tests.app.test_app_main_job import LIMIT_S, console, until
from tests.ports import free_port

GARBLED = (
    "[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, "
    "accept len: 2.58.00, accept rate: 0.52, cuda graph: True, "
    "gen throughput (token/s): 1.2.3, #queue-req: 0\n"
)


async def _ready(hub: Hub, host: str) -> ServerView:
    await hub.settle()
    server_id = await hub.launch(hub.plan("sglang-eagle3", host, {"port": str(free_port())}))
    return await hub.wait(server_id, timeout_s=LIMIT_S)


def _second(first: Hub) -> Hub:
    profiles = ProfileStore.load()
    return Hub((first.hosts()[0],), profiles, connect=transport_to, workload=load_workload)


async def test_a_garbled_line_of_a_ready_server_is_passed_over() -> None:
    async with console() as (first, host, _):
        view = await _ready(first, host)
        with Path(view.log_path).open("a", encoding="utf-8") as log:
            log.write(GARBLED)
        async with _second(first) as second:
            await second.settle()
            found = await second.wait(view.id, timeout_s=LIMIT_S)
            assert found.state is ServerState.READY
            assert not any("stopped" in note for note in found.notes)
        await first.stop(view.id, grace_s=3.0)


async def test_a_dead_log_reader_is_told_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with console() as (first, host, _):
        view = await _ready(first, host)

        def broken(self: LogReader, data: bytes) -> list[LogEvent]:
            raise TypeError("a mistake of ours")

        monkeypatch.setattr(LogReader, "feed", broken)
        async with _second(first) as second:
            await second.settle()
            found = await second.wait(view.id, timeout_s=LIMIT_S)
            assert found.state is ServerState.READY
            told = await until(second, lambda s: _told(s.server(view.id)))
            assert told.server(view.id) is not None
        monkeypatch.undo()
        await first.stop(view.id, grace_s=3.0)
    assert "server: log ended unexpectedly" in caplog.text


def _told(view: ServerView | None) -> bool:
    wanted = "reading its log stopped: TypeError: a mistake of ours"
    return view is not None and wanted in view.notes


async def test_a_task_that_broke_is_known_until_it_starts_again() -> None:
    broken: dict[str, str] = {}
    changes: list[str] = []
    bag = TaskBag("server", broken=broken, changed=lambda: changes.append("x"))

    async def fail() -> None:
        raise RuntimeError("no")

    async def hold() -> None:
        return

    bag.start("log", fail())
    await bag.finish("log")
    await bag.close()
    assert broken == {"log": "RuntimeError: no"}
    assert changes == ["x"]
    bag.start("log", hold())
    assert broken == {}
    await bag.close()
