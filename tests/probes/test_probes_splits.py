"""The load generator's reading of an answer: the same for any way that its bytes are cut."""

import ast
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglemon.agent import loadgen
from eaglemon.app.probe_answer import Answer
from eaglemon.core.probe import RequestRecord, RequestStatus
from eaglemon.core.sse import SseDecoder
from eaglemon.engines import ENGINES

CAPTURES = Path(__file__).parents[1] / "captures"
SGLANG = CAPTURES / "sglang-0.5.16-h200" / "eagle3-right"
VLLM = CAPTURES / "vllm-0.32-cpu" / "http"


def sglang_body(name: str) -> bytes:
    chunks = json.loads((SGLANG / name).read_text("utf-8"))
    return "".join(text for _, text in chunks).encode()


def vllm_body(name: str) -> bytes:
    raw = (VLLM / name).read_bytes()
    return raw.partition(b"\r\n\r\n")[2] if raw.startswith(b"HTTP/") else raw


BODIES = {
    "sglang-generate": ("sglang", sglang_body("stream-generate.json")),
    "vllm-usage-per-chunk": ("vllm", vllm_body("stream-continuous-usage.raw")),
    "vllm-usage-at-the-end": ("vllm", vllm_body("stream-include-usage.raw")),
    "vllm-no-usage": ("vllm", vllm_body("stream-plain.raw")),
    "vllm-cut": ("vllm", vllm_body("stream-cut-by-sigterm.raw")),
}


class Wire:
    """A transport that nothing is sent over."""

    def write(self, data: bytes) -> None:
        del data

    def abort(self) -> None:
        pass


def framed(body: bytes, framing: str, sizes: list[int]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\n"
    if framing == "length":
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    if framing == "close":
        return head + b"Connection: close\r\n\r\n" + body
    chunks, rest = [], body
    for size in [*sizes, len(body)]:
        part, rest = rest[:size], rest[size:]
        if part:
            chunks.append(b"%X;ext=1\r\n%s\r\n" % (len(part), part))
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    return (
        interim
        + head
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(chunks)
        + b"0\r\nTrailer: x\r\n\r\n"
    )


def through_generator(engine: str, data: bytes, cuts: list[int]) -> RequestRecord:
    """Feed the bytes in pieces and return the record as the console makes it."""
    paths = [list(path) for path in ENGINES[engine].measuring.count_paths]
    answer = loadgen.Answer(3, paths, 0.0)
    connection = loadgen.Connection(loadgen.Inbox())
    connection.connection_made(Wire())
    connection._answer = answer
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in itertools.pairwise(edges):
        if data[start:end]:
            connection.take(data[start:end], 0.5)
    answer.end(1.0)
    collected = Answer(ENGINES[engine].stream_decoder())
    # As it arrives on the other side.
    collected.take_events(json.loads(json.dumps(answer.events)))
    return collected.record(3, "p", sent_at=0.0, took_s=1.0)


def directly(engine: str, body: bytes) -> RequestRecord:
    collected = Answer(ENGINES[engine].stream_decoder())
    collected.feed(body, 0.5)
    collected.close(0.5)
    return collected.record(3, "p", sent_at=0.0, took_s=1.0)


def essence(record: RequestRecord) -> tuple[Any, ...]:
    return (
        record.status,
        [arrival.tokens for arrival in record.arrivals],
        record.completion_tokens,
        record.prompt_tokens,
        record.counts,
        record.error,
    )


@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_split_and_framing_gives_the_same_record(name: str, data: st.DataObject) -> None:
    engine, body = BODIES[name]
    framing = data.draw(st.sampled_from(["chunked", "length", "close"]))
    sizes = data.draw(st.lists(st.integers(1, 400), max_size=40))
    cuts = data.draw(st.lists(st.integers(0, 1 << 20), max_size=60))

    record = through_generator(engine, framed(body, framing, sizes), cuts)

    assert essence(record) == essence(directly(engine, body))


@pytest.mark.parametrize("name", BODIES)
def test_byte_by_byte(name: str) -> None:
    engine, body = BODIES[name]
    data = framed(body, "chunked", [7] * 50)

    record = through_generator(engine, data, list(range(len(data))))

    assert essence(record) == essence(directly(engine, body))
    cut = name == "vllm-cut"
    assert (record.status is RequestStatus.OK) != cut


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(
            [b"data: {}", b"data:x", b": note", b"event: a", b"", b"id: 1", b"data: y "]
        )
    ),
    ends=st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=1),
    cuts=st.lists(st.integers(0, 200)),
)
def test_events_are_those_of_the_standard(
    lines: list[bytes], ends: list[bytes], cuts: list[int]
) -> None:
    body = b"".join(line + ends[i % len(ends)] for i, line in enumerate(lines))
    edges = [0, *sorted({cut % (len(body) + 1) for cut in cuts}), len(body)]
    mine = loadgen.Events()
    theirs = SseDecoder()
    found = [
        text for start, end in itertools.pairwise(edges) for text in mine.feed(body[start:end])
    ]
    expected = [event.data for event in theirs.feed(body)]
    assert found + mine.close() == expected + [event.data for event in theirs.close()]


@settings(max_examples=100, deadline=None)
@given(junk=st.binary(max_size=300), cuts=st.lists(st.integers(0, 400), max_size=10))
def test_no_bytes_whatsoever_break_it(junk: bytes, cuts: list[int]) -> None:
    for head in (
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        record = through_generator("sglang", head + junk, cuts)
        assert record.status is not RequestStatus.OK


def test_it_parses_as_python_3_8_and_imports_the_standard_library_only() -> None:
    tree = ast.parse(Path(loadgen.__file__).read_text("utf-8"), feature_version=(3, 8))
    names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    allowed = {"__future__", "asyncio", "collections", "gc", "json", "queue", "sys", "threading"}
    assert set(names) <= allowed | {
        "contextlib",
        "socket",
        "ssl",
        "struct",
        "time",
        "typing",
        "zlib",
    }
