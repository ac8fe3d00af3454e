"""An engine whose token times are known: what a measuring client sees can be compared with them.

Every answer follows one schedule from the moment its request has arrived: a first token, then
chunks of one or of several tokens at equal gaps. It speaks SGLang's ``/generate`` and OpenAI's
``/v1/completions``, and tells at ``/truth`` when the kernel took each request in and when its
chunks were really handed to the kernel, on this machine's monotonic clock, and how late it was.

    python benchmarks/mock_engine.py --tokens spec
"""

import argparse
import asyncio
import gc
import itertools
import json
import re
import socket
import sys
import time
from dataclasses import dataclass, field

from eaglemon.agent.loadgen import SO_TIMESTAMPNS, Plain

TOKENS = 256
TTFT_S = 0.050
SIZES = {"one": (1,), "spec": (1, 4, 2, 3)}
"""Tokens of the chunks, in turn: their mean is the accept length."""
GAPS_S = {"one": 0.010, "spec": 0.025}
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def running_totals(kind: str) -> list[int]:
    """Return the number of tokens after each chunk; the first chunk has one token."""
    totals, sizes = [1], SIZES[kind]
    while totals[-1] < TOKENS:
        totals.append(min(TOKENS, totals[-1] + sizes[(len(totals) - 1) % len(sizes)]))
    return totals


def accept_counts(kind: str) -> tuple[int, list[int]]:
    """Return verify steps and how many accepted exactly k drafts."""
    totals = running_totals(kind)
    histogram = [0] * max(SIZES[kind])
    for before, after in itertools.pairwise(totals):
        histogram[after - before - 1] += 1
    return len(totals) - 1, histogram


def frame(value: object) -> bytes:
    """Return one event as an HTTP chunk."""
    data = b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def native_stream(kind: str) -> list[bytes]:
    """Return the chunks as SGLang sends them: all of the text each time."""
    steps, histogram = accept_counts(kind)
    chunks = []
    for total in running_totals(kind):
        over = total == TOKENS
        meta: dict[str, object] = {"id": "m", "completion_tokens": total, "prompt_tokens": 16}
        meta["finish_reason"] = {"type": "length", "length": TOKENS} if over else None
        if over and kind == "spec":
            meta["spec_verify_ct"] = steps
            meta["spec_correct_drafts_histogram"] = histogram
        chunks.append(frame({"text": "word " * total, "meta_info": meta}))
    return [*chunks[:-1], chunks[-1] + frame(b"[DONE]") + b"0\r\n\r\n"]


def openai_stream(kind: str) -> list[bytes]:
    """Return the chunks as OpenAI's completions send them, with the usage at the end."""
    chunks, before = [], 0
    for total in running_totals(kind):
        reason = "length" if total == TOKENS else None
        text = "word " * (total - before)
        choice = {"index": 0, "text": text, "finish_reason": reason}
        chunks.append(frame({"id": "m", "object": "text_completion", "choices": [choice]}))
        before = total
    usage = {"prompt_tokens": 16, "completion_tokens": TOKENS, "total_tokens": TOKENS + 16}
    last = frame({"id": "m", "choices": [], "usage": usage}) + frame(b"[DONE]")
    return [*chunks[:-1], chunks[-1] + last + b"0\r\n\r\n"]


@dataclass(slots=True)
class Engine:
    """What all connections share."""

    kind: str
    truth: list[tuple[float, float, float, float]] = field(default_factory=list)
    """(request arrived, first chunk sent, last chunk sent, latest chunk behind its time)."""
    streams: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Render the streams once: sending must not cost what it measures."""
        self.streams = {
            "/generate": native_stream(self.kind),
            "/v1/completions": openai_stream(self.kind),
        }

    def page(self, path: str) -> bytes:
        """Return a whole answer; asking for the truth begins it anew."""
        body = {
            "/truth": json.dumps(self.truth),
            "/v1/models": json.dumps({"data": [{"id": "mock", "owned_by": "sglang"}]}),
            "/health": "{}",
        }.get(path, "")
        if path == "/truth":
            self.truth.clear()
        status = "200 OK" if body else "404 Not Found"
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


class Answering:
    """One connection; a request has arrived when the kernel took it in, read or not."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.loop = asyncio.get_running_loop()
        self.transport: Plain | None = None
        self.received = b""

    def connection_made(self, transport: Plain) -> None:
        """Take the connection."""
        self.transport = transport

    def eof_received(self) -> None:
        """Take the client's end; what is lost follows."""

    def connection_lost(self, error: Exception | None) -> None:
        """Take the news that nobody listens any more."""
        del error
        self.transport = None

    def arrived(self, data: bytes, at: float | None) -> None:
        """Take bytes; a request that is whole is answered."""
        arrived = time.monotonic() if at is None else at
        self.received += data
        while (request := self._request()) is not None:
            if request in self.engine.streams:
                Stream(self, self.engine.streams[request], arrived).begin()
            elif self.transport is not None:
                self.transport.write(self.engine.page(request))

    def _request(self) -> str | None:
        """Return the path of the next whole request and forget its bytes."""
        head, mark, rest = self.received.partition(b"\r\n\r\n")
        if not mark:
            return None
        found = LENGTH.search(head)
        length = int(found[1]) if found else 0
        if len(rest) < length:
            return None
        self.received = rest[length:]
        return head.split(b" ", 2)[1].decode("latin-1")


class Stream:
    """One answer under way."""

    def __init__(self, connection: Answering, chunks: list[bytes], arrived: float) -> None:
        self.connection = connection
        self.chunks = iter(chunks)
        self.left = len(chunks)
        self.arrived = arrived
        self.due = arrived + TTFT_S
        self.first = self.latest = 0.0

    def begin(self) -> None:
        """Send the head; the first chunk follows at its time."""
        if self.connection.transport is not None:
            self.connection.transport.write(HEAD)
        self.connection.loop.call_at(self.due, self._send)

    def _send(self) -> None:
        transport = self.connection.transport
        if transport is None:
            return
        transport.write(next(self.chunks))
        now = time.monotonic()
        self.first = self.first or now
        self.latest = max(self.latest, now - self.due)
        self.left -= 1
        self.due += GAPS_S[self.connection.engine.kind]
        if self.left:
            self.connection.loop.call_at(self.due, self._send)
        else:
            self.connection.engine.truth.append((self.arrived, self.first, now, self.latest))


async def main() -> None:
    """Serve until stdin ends, having printed the port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", choices=sorted(SIZES), default="spec")
    engine = Engine(parser.parse_args().tokens)
    # A collection in the middle would delay what is timed; what is kept is bounded.
    gc.freeze()
    gc.disable()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(512)
        server.setblocking(False)  # noqa: FBT003 -- has no name
        # Connections inherit it: a request may be there before anybody has asked.
        server.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        accepting = asyncio.create_task(accept(server, engine))
        sys.stdout.write(f"{server.getsockname()[1]}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        accepting.cancel()


async def accept(server: socket.socket, engine: Engine) -> None:
    """Take connections for ever."""
    while True:
        opened, _ = await asyncio.get_running_loop().sock_accept(server)
        opened.setblocking(False)  # noqa: FBT003 -- has no name
        Plain(opened, Answering(engine))


if __name__ == "__main__":
    asyncio.run(main())
