"""A server on loopback that answers generations as a script says, byte by byte."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eaglemon.app.hub import Hub
from eaglemon.core.hosts import HostSpec
from eaglemon.core.probe import ProbePlan, Prompt
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload

EOF = "eof"
"""Close the sending side, keep the connection."""
ABORT = "abort"
HANG = "hang"
DIE = "die"
"""The whole server goes: no connection is left and none is accepted."""
Step = bytes | float | str
Script = Sequence[Step]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(tokens: int, *, done: bool = False, **meta: Any) -> bytes:
    """Return an event as SGLang streams it: all text and the number of tokens so far."""
    reason = {"type": "length", "length": tokens} if done else None
    info = {
        "id": "x",
        "finish_reason": reason,
        "completion_tokens": tokens,
        "prompt_tokens": 7,
        **meta,
    }
    return b"data: " + json.dumps({"text": "x" * tokens, "meta_info": info}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def good(*running: int, gap_s: float = 0.0, **meta: Any) -> list[Step]:
    """Return the script of a good answer with these running numbers of tokens."""
    steps: list[Step] = [OK]
    for number in running[:-1]:
        steps += [chunk(event(number)), gap_s]
    return [*steps, chunk(event(running[-1], done=True, **meta)), chunk(DONE), END]


@dataclass
class ScriptedServer:
    """Answers the n-th generation with ``script(n)``."""

    script: Callable[[int], Script]
    metrics: Callable[[int], str | None] = lambda _: None
    port: int = 0
    generations: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    connections: int = 0
    tls: ssl.SSLContext | None = None
    played: str = "/generate"
    """The path that the script answers."""
    owner: str = "sglang"
    """Which engine its list of models tells."""
    prefix: str = ""
    """As a gateway puts it before the engine's paths."""
    heads: list[str] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}{self.prefix}"

    async def __aenter__(self) -> "ScriptedServer":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        mine = asyncio.current_task()
        others = [task for task in self._tasks if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        self.heads.append(head)
        whole = head.split(" ")[1]
        path = whole.removeprefix(self.prefix) if whole.startswith(self.prefix) else "elsewhere"
        self.paths.append(path)
        if path == self.played:
            number = len(self.generations)
            self.generations.append(json.loads(body or b"{}"))
            return await self._play(self.script(number), reader, writer)
        model = {"id": "tiny", "owned_by": self.owner}
        answers = {"/v1/models": json.dumps({"data": [model]}), "/flush_cache?timeout=10": "ok"}
        text = answers.get(path)
        if path == "/metrics":
            text = self.metrics(len(self.generations))
        data = (text or "not here").encode()
        status = "200 OK" if text is not None else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        return True

    async def _play(
        self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        for step in script:
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case float():
                    await asyncio.sleep(step)
                case "eof":
                    writer.write_eof()
                    await reader.read()
                    return False
                case "abort":
                    writer.transport.abort()
                    return False
                case "hang":
                    await asyncio.Event().wait()
                case "die":
                    await self._close()
                    writer.transport.abort()
                    return False
        return True


@asynccontextmanager
async def local_hub(state: Path) -> AsyncIterator[Hub]:
    """A hub on this machine, with the real agent."""
    spec = HostSpec(name="local", transport="local", env={"XDG_STATE_HOME": str(state)})
    hub = Hub((spec,), ProfileStore.load(), connect=transport_to, workload=load_workload)
    async with hub:
        yield hub


def plan(**values: Any) -> ProbePlan:
    """Return a small plan."""
    prompts = tuple(Prompt(id=f"p{i}", text=f"prompt {i}") for i in range(3))
    usual: dict[str, Any] = {
        "workload": "chat",
        "prompts": prompts,
        "requests": 4,
        "concurrency": 2,
        "warmup": 0,
        "request_limit_s": 5.0,
        "total_limit_s": 30.0,
    }
    return ProbePlan(**{**usual, **values})
