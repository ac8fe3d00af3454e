"""An engine whose token times are known: what a measuring client sees can be compared with them.

Every answer follows one schedule from the moment its request has arrived: a first token, then
chunks of one or of several tokens at equal gaps. It speaks SGLang's ``/generate`` and OpenAI's
``/v1/completions``, and tells at ``/truth`` what it really did, on this machine's monotonic clock.

    python benchmarks/mock_engine.py --tokens spec
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import time
from dataclasses import dataclass, field

TOKENS = 256
TTFT_S = 0.050
SIZES = {"one": (1,), "spec": (1, 4, 2, 3)}
"""Tokens of the chunks, in turn: their mean is the accept length."""
GAPS_S = {"one": 0.010, "spec": 0.025}
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
    """Answers on one port."""

    kind: str
    truth: list[tuple[float, float, float]] = field(default_factory=list)
    """(request arrived, first chunk sent, last chunk sent) of each answer."""
    streams: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Render the streams once: sending must not cost what it measures."""
        self.streams = {
            "/generate": native_stream(self.kind),
            "/v1/completions": openai_stream(self.kind),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        await reader.readexactly(int(fields.get("content-length", "0")))
        path = head.split(" ")[1]
        if path in self.streams:
            await self._stream(self.streams[path], writer)
            return True
        body = {
            "/truth": json.dumps(self.truth),
            "/v1/models": json.dumps({"data": [{"id": "mock", "owned_by": "sglang"}]}),
        }.get(path, "")
        if path == "/truth":
            self.truth.clear()
        status = "200 OK" if body else "404 Not Found"
        text = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        writer.write(text.encode())
        return True

    async def _stream(self, chunks: list[bytes], writer: asyncio.StreamWriter) -> None:
        arrived = time.monotonic()
        due = arrived + TTFT_S
        first = 0.0
        writer.write(HEAD)
        for chunk in chunks:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(chunk)
            first = first or time.monotonic()
            due += GAPS_S[self.kind]
        self.truth.append((arrived, first, time.monotonic()))


async def main() -> None:
    """Serve until stdin ends, having printed the port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", choices=sorted(SIZES), default="spec")
    engine = Engine(parser.parse_args().tokens)
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, limit=1 << 24)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
