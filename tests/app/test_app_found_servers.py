"""Servers that a console finds: how long it waits for what they are, and what it says of them."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.hub import Hub
from eaglemon.core.hosts import HostSpec
from eaglemon.core.views import ServerState, ServerView, Snapshot
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.local import LocalTransport
from eaglemon.io.workloads import load_workload
from eaglemon.tui.news import news
from tests.agent.driver import kill_all_of, linked, python, request, until
from tests.ports import free_port
from tests.tui import snapshots

SERVER = """
import http.server, json, sys, time
from tests.ports import free_port
class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/v1/models":
            return self.say(200, {"data": [{"id": "m"}]})
        self.say(200 if "health" in self.path else 404, {})
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if sys.argv[2] == "hangs":
            time.sleep(600)
        good = sys.argv[2] == "good"
        self.say(200 if good else 404, {"text": " a", "choices": [{"text": " a"}]})
    def say(self, code, value):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
print("here", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir()
    yield folder
    kill_all_of(folder)


@asynccontextmanager
async def found(state: Path, kind: str) -> AsyncIterator[Hub]:
    """Start a server of one ``kind``, and open a console that finds it."""
    port = free_port()
    async with linked(LocalTransport(), state) as link:
        argv = (*python(SERVER), str(port), kind)
        record = await link.start_run(request("one", *argv, engine="vllm", port=port))
        await until(lambda: Path(record.log_path).read_bytes() != b"")
        spec = HostSpec(name="here", transport="local", env={"XDG_STATE_HOME": str(state)})
        async with Hub(
            (spec,), ProfileStore.load(), connect=transport_to, workload=load_workload
        ) as hub:
            yield hub


@pytest.mark.parametrize(("kind", "told"), [("refuses", "HTTP 404"), ("hangs", "first token")])
async def test_a_server_that_generates_nothing_is_not_waited_for(
    state: Path, kind: str, told: str
) -> None:
    async with found(state, kind) as hub:
        await hub.settle(needs="runs", timeout_s=60.0)
        assert hub.find("one").id == "one"
        began = time.monotonic()
        snapshot = await hub.settle(timeout_s=120.0)
        took_s = time.monotonic() - began
        (server,) = snapshot.servers
        assert server.state is ServerState.WARMING
        assert told in server.detail
        assert took_s < 60.0, "it was waited for"
        lines = [line async for batch in hub.logs("one", follow=False) for line in batch.lines]
        assert lines == ["here"]


async def test_a_server_found_ready_has_no_time_when_it_was(state: Path) -> None:
    async with found(state, "good") as hub:
        (server,) = (await hub.settle()).servers
        assert server.state is ServerState.READY
        assert server.ready_at is None


def _only(server: ServerView) -> Snapshot:
    return replace(snapshots.only(server), at=snapshots.AT)


@pytest.mark.parametrize(
    ("ready_s", "said"),
    [
        (None, []),
        (3.5, []),
        (282.0, ["k25-eagle3 is ready after 4 m 42 s"]),
    ],
)
def test_news_of_a_start_are_new(ready_s: float | None, said: list[str]) -> None:
    old = snapshots.starting()
    at = None if ready_s is None else old.launched_at + ready_s
    found_ready = replace(old, state=ServerState.READY, ready_at=at)
    assert [one.text for one in news(_only(old), _only(found_ready))] == said
