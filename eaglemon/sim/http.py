"""A small HTTP/1.1 server on asyncio: what the simulated engines answer with."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

_MAX_BODY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    client: str = ""
    """Address and port of the other side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer; ``stream`` takes the place of the body and is sent in chunks."""

    status: int = 200
    body: bytes = b""
    content_type: str | None = "application/json"
    stream: AsyncIterator[bytes] | None = None

    @classmethod
    def of(cls, value: object, status: int = 200) -> "Reply":
        """Return a reply that carries JSON."""
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return cls(status=status, body=text.encode())


Handler = Callable[[Call], Awaitable[Reply]]


class HttpServer:
    """Serves a handler; each connection may carry many requests."""

    def __init__(self, handler: Handler, on_answer: Callable[[Call, int], None]) -> None:
        self._handler = handler
        self._on_answer = on_answer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open_streams = 0
        self._no_streams = asyncio.Event()
        self._no_streams.set()

    @property
    def streaming(self) -> bool:
        """Whether an answer is being streamed."""
        return self._open_streams > 0

    async def start(self, host: str, port: int) -> None:
        """Listen; raises ``OSError`` when the port is taken."""
        self._server = await asyncio.start_server(self._connected, host, port)

    async def start_socket(self, sock: socket.socket) -> None:
        """Listen on a socket that is bound already."""
        self._server = await asyncio.start_server(self._connected, sock=sock)

    async def close(self, *, drain: bool = False) -> None:
        """Stop listening; with ``drain`` wait until no connection streams any more."""
        if self._server is not None:
            self._server.close()
        if drain:
            await self._no_streams.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            while (call := await _read_call(reader, writer)) is not None:
                keep = await self._serve(call, reader, writer)
                if not keep:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.close()
            if task is not None:
                self._tasks.discard(task)

    async def _serve(
        self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        reply = await self._handler(call)
        self._on_answer(call, reply.status)
        head = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}", "server: uvicorn"]
        if reply.content_type:
            head.append(f"content-type: {reply.content_type}")
        if reply.stream is None:
            head.append(f"content-length: {len(reply.body)}")
            writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + reply.body)
            await writer.drain()
            return call.headers.get("connection", "").lower() != "close"
        head.append("transfer-encoding: chunked")
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n")
        await self._stream(reply.stream, reader, writer)
        return call.headers.get("connection", "").lower() != "close"

    async def _stream(
        self,
        stream: AsyncIterator[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._open_streams += 1
        self._no_streams.clear()
        gone = asyncio.create_task(_wait_gone(reader))
        try:
            while (piece := await _next_or_gone(stream, gone)) is not None:
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self._open_streams -= 1
            if not self._open_streams:
                self._no_streams.set()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()


async def _next_or_gone(stream: AsyncIterator[bytes], gone: asyncio.Task[None]) -> bytes | None:
    """Return the next piece, ``None`` at the end; raises when the client leaves first."""
    taking = asyncio.ensure_future(anext(stream, None))
    try:
        await asyncio.wait({taking, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not taking.done():
            raise ConnectionResetError
        return taking.result()
    finally:
        if not taking.done():
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)


async def _wait_gone(reader: asyncio.StreamReader) -> None:
    # A client that keeps the connection sends nothing while it reads an answer; looking must not
    # take bytes of its next request, so only the end of the stream is looked for.
    while not reader.at_eof():  # noqa: ASYNC110 - a reader tells of its end to nobody
        await asyncio.sleep(0.05)


async def _read_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _version = first.split(" ", 2)
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if length > _MAX_BODY_BYTES:
        return None
    body = await reader.readexactly(length) if length else b""
    path, _, query = target.partition("?")
    peer = writer.get_extra_info("peername") or ("", 0)
    return Call(
        method=method,
        path=path,
        query=query,
        headers=headers,
        body=body,
        client=f"{peer[0]}:{peer[1]}",
    )
