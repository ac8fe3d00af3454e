"""The server that answers is the one launched, by what it says of itself, scripted."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eaglemon.app.health import listener_on
from eaglemon.app.health_watch import HealthWatch, Watched
from eaglemon.core.lifecycle_events import Event, TokenFailed, TokenSeen
from eaglemon.core.profiles import Profile, Speculation
from eaglemon.core.runs import HostCheck, PortListener
from eaglemon.engines import engine_named
from eaglemon.io.clock import SystemClock
from eaglemon.io.host_link import HostLink
from eaglemon.io.http import HttpClient
from eaglemon.io.local import LocalTransport

INFO = Path(__file__).parents[1] / "experiments" / "server_info" / "eagle3.json"
"""``/server_info`` of SGLang 0.5.16 on an H200."""
VLLM_LOG = Path(__file__).parents[1] / "captures" / "vllm-0.32-cpu" / "ready-eager.log"
SGLANG, VLLM = engine_named("sglang"), engine_named("vllm")
INFO_VALUES: dict[str, Any] = json.loads(INFO.read_text("utf-8"))
AS_LAUNCHED = Profile(
    name="p",
    engine="sglang",
    model="/models/target",
    draft="/models/draft-low-mid-high",
    port=31793,
    speculation=Speculation(algorithm="EAGLE3", steps=5, topk=1, draft_tokens=6),
    flags={"random-seed": 418182112},
)


@dataclass
class Answers:
    """A server on loopback that tells of itself what it was given."""

    pages: dict[str, object]
    port: int = 0
    asked: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = [line for line in head.split("\r\n") if line.startswith("content-length")]
                await reader.readexactly(int(length[0].split(":")[1]) if length else 0)
                path = head.split(" ")[1]
                self.asked.append(path)
                body = json.dumps(self.pages.get(path)).encode()
                status = "200 OK" if path in self.pages else "404 Not Found"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
                writer.write(body)
        writer.close()


@asynccontextmanager
async def answering(**info: object) -> AsyncIterator[Answers]:
    answers = Answers({"/generate": {"text": " a"}})
    server = await asyncio.start_server(answers.serve, "127.0.0.1", 0)
    answers.port = server.sockets[0].getsockname()[1]
    answers.pages["/v1/models"] = {"data": [{"id": "/models/target", "owned_by": "sglang"}]}
    answers.pages["/server_info"] = {**INFO_VALUES, "port": answers.port, **info}
    try:
        yield answers
    finally:
        server.close()


async def first_token(answers: Answers, profile: Profile, record: object = None) -> Event:
    """Ask for the first token where nobody can see whose process listens."""
    transport = LocalTransport()
    http = HttpClient(transport, address="127.0.0.1", port=answers.port)
    fed: list[Event] = []
    server = SimpleNamespace(
        engine=SGLANG,
        profile=replace(profile, port=answers.port),
        record=record,
        model_name="",
        http=lambda: http,
        feed=fed.append,
        log=SimpleNamespace(knows_ready=False),
    )
    await HealthWatch(cast("Watched", server), SystemClock()).first_token(0.0)
    await http.close()
    (event,) = fed
    return event


async def test_a_server_that_tells_what_was_launched_is_ours() -> None:
    async with answering() as answers:
        assert await first_token(answers, AS_LAUNCHED) == TokenSeen()
        assert "/generate" in answers.asked


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ({"speculative_draft_model_path": "/models/other"}, "draft /models/other, not /models/dr"),
        ({"speculative_num_steps": 3}, "steps 3, not 5"),
        ({"speculative_eagle_topk": 4}, "topk 4, not 1"),
        ({"speculative_algorithm": None}, "speculation none, not EAGLE3"),
        ({"random_seed": 7}, "random seed 7, not 418182112"),
        ({"model_path": "/models/elsewhere"}, "model /models/elsewhere, not /models/target"),
        ({"port": 1}, "port 1, not"),
    ],
)
async def test_a_server_with_the_same_name_and_other_arguments_is_another(
    info: dict[str, object], told: str
) -> None:
    async with answering(**info) as answers:
        event = await first_token(answers, AS_LAUNCHED)
        assert isinstance(event, TokenFailed)
        assert f"port {answers.port} is answered by another server: " in event.reason
        assert told in event.reason
        assert "/generate" not in answers.asked


async def test_the_run_s_own_command_line_decides() -> None:
    async with answering(random_seed=7) as answers:
        argv = SGLANG.argv(replace(AS_LAUNCHED, port=answers.port, flags={"random-seed": 7}))
        record = SimpleNamespace(id="r", argv=argv)
        assert await first_token(answers, AS_LAUNCHED, record) == TokenSeen()


async def test_what_is_not_told_is_no_difference() -> None:
    async with answering() as answers:
        del answers.pages["/server_info"]
        assert await first_token(answers, AS_LAUNCHED) == TokenSeen()
    bare = replace(AS_LAUNCHED, flags={}, speculation=Speculation(algorithm="EAGLE3"), draft=None)
    assert SGLANG.unlike(bare, {}, INFO_VALUES, ()) == []
    # A name of a hub may be told as the folder that it was loaded into.
    assert SGLANG.unlike(replace(bare, model="org/name"), {}, INFO_VALUES, ()) == []


def test_a_baseline_is_not_a_server_with_a_draft() -> None:
    baseline = replace(AS_LAUNCHED, draft=None, speculation=None)
    assert SGLANG.unlike(baseline, {}, INFO_VALUES, ()) == ["speculation EAGLE3, not none"]
    configured = replace(baseline, flags={"config": "/etc/sglang.yaml"})
    assert SGLANG.unlike(configured, {}, INFO_VALUES, ()) == []


def test_vllm_is_told_by_its_model_s_path_and_what_the_run_s_log_says() -> None:
    log = VLLM_LOG.read_text("utf-8", "replace").splitlines()
    profile = replace(AS_LAUNCHED, engine="vllm", model="models/target-cycle")
    card = {"id": "m", "root": "models/target-cycle", "max_model_len": 1024}
    assert VLLM.unlike(profile, card, None, log) == []
    assert VLLM.unlike(profile, {**card, "max_model_len": 4096}, None, log) == [
        "longest context 4096, not 1024"
    ]
    assert VLLM.unlike(profile, {**card, "root": "models/b"}, None, ()) == [
        "model models/b, not models/target-cycle"
    ]


@pytest.mark.parametrize(
    ("pids", "ours", "stranger"),
    [
        ([1], True, False),
        ([1, 1], True, False),
        ([1, 2], False, False),
        ([1, None], False, False),
        ([None], False, False),
        ([2], False, True),
        ([], False, False),
    ],
)
async def test_a_second_listener_on_the_port_leaves_it_open_who_answers(
    pids: list[int | None], ours: bool, stranger: bool
) -> None:
    async def check_host(*, port: int) -> HostCheck:
        return HostCheck(
            listeners=tuple(PortListener(address="::", port=port, pid=pid) for pid in pids)
        )

    link = cast("HostLink", SimpleNamespace(check_host=check_host))
    found = await listener_on(link, 1, frozenset({1}))
    assert (found.ours, found.stranger is not None) == (ours, stranger)
