"""The load generator: sends a probe's requests from the host itself, and stamps what arrives.

One file, standard library only, Python 3.8 or newer, run through the agent's ``program.run``.
It knows HTTP/1.1 and server-sent events and no engine: its input says where a chunk carries the
running number of tokens. Chunks with that number become (time, number); all others, and the last
few, are passed on as they are, for the engine's own decoder on the other side.

Input (JSON): ``address``, ``port``, ``authority`` (the field ``Host``), ``tls`` (null, or
``verify`` and ``ca_pem``: null is what this machine trusts), ``headers``, ``users``, ``method``,
``path``, ``template`` (a body as JSON text, with ``mark`` where the prompt belongs), ``mark``,
``texts``, ``requests`` ([number, prefix, index of a text]), ``count_paths``,
``request_limit_s``, ``connect_limit_s``,
``duration_s`` (no request begins later; null: no limit). Output, one JSON object a line:

    {"live": {"at": s, "begun": n, "ended": n, "tokens": n}}    twice a second
    {"request": {"number", "sent_at", "took_s", "status", "events", "body", "error"}}
    {"end": {"elapsed_s", "cpu_share", "lag_median_s", "lag_p95_s", "lag_max_s", "kernel_share"}}

``events`` are [seconds after sending, running number or null, data or null] in order; times are
of one monotonic clock that starts when all users are connected.
"""

from __future__ import annotations

import asyncio
import gc
import json
import queue
import socket
import struct
import sys
import threading
import time
import zlib
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

LIVE_INTERVAL_S = 0.5
TICK_S = 0.01
"""The event loop's lag is taken this often."""
LAST_EVENTS = 4
"""So many of the last events keep their data: the end of an answer is among them."""
MAX_BODY_BYTES = 4096
"""Of an answer that is no stream of events."""
READ_AT_ONCE = 8
"""Arrivals that are read before the next ones are looked for: reading them costs about 0.05 ms."""
READ_BYTES, TOLD_BYTES = 256 << 10, 64
SO_TIMESTAMPNS = 35
"""Linux: asks for the time at which the kernel took bytes in; Python has no name for it."""
TIMESPEC = struct.Struct("@ll")
MOST_BEHIND_S = 30.0
MAX_HEAD_BYTES = 64 << 10
MAX_EVENT_BYTES = 8 << 20

Json = Dict[str, Any]
Event = List[Any]


class BrokenError(Exception):
    """The connection or the answer broke off."""


class Writer:
    """Writes lines from a thread of its own: a reader that is slow must not delay a stamp."""

    def __init__(self) -> None:
        self._lines: "queue.SimpleQueue[Optional[Json]]" = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, line: Json) -> None:
        """Queue one line."""
        self._lines.put(line)

    def close(self) -> None:
        """Write what is queued and end."""
        self._lines.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            line = self._lines.get()
            if line is None:
                return
            sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
            sys.stdout.flush()


class Events:
    """Splits a body into the data of its server-sent events, however it is cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: List[bytes] = []
        self._after_return = False

    def feed(self, chunk: bytes) -> List[str]:
        """Take bytes and return the events that they complete."""
        if self._after_return and chunk[:1] == b"\n":
            chunk = chunk[1:]
        if chunk:
            self._after_return = chunk[-1:] == b"\r"
        lines = (self._rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_EVENT_BYTES:
            raise BrokenError("the server sent an endless line")
        events: List[str] = []
        for line in lines:
            if not line:
                self._dispatch(events)
            elif line[:5] == b"data:":
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        return events

    def close(self) -> List[str]:
        """Return the last event when the stream ended without its empty line."""
        events: List[str] = []
        if self._rest:
            events = self.feed(b"\n")
        self._dispatch(events)
        return events

    def _dispatch(self, events: List[str]) -> None:
        if self._data:
            events.append(b"\n".join(self._data).decode("utf-8", "replace"))
            self._data = []


class Answer:
    """One request under way: its answer is read as it arrives."""

    def __init__(self, number: int, count_paths: List[List[str]], sent: float) -> None:
        self.number = number
        self.sent = sent
        self.ended = 0.0
        """When its last byte arrived; 0: not known."""
        self.status: Optional[int] = None
        self.body = b""
        self.tokens = 0
        self.events: List[Event] = []
        self._paths = count_paths
        self._sse = Events()
        self._last: Deque[Tuple[Event, str]] = deque(maxlen=LAST_EVENTS)

    def take(self, chunk: bytes, now: float) -> None:
        """Take decoded bytes of the body."""
        if self.status != 200:
            self.body = (self.body + chunk)[:MAX_BODY_BYTES]
            return
        for data in self._sse.feed(chunk):
            self._note(data, now)

    def end(self, now: float) -> None:
        """Take the end of the answer, or of what came of it."""
        if self.status == 200:
            for data in self._sse.close():
                self._note(data, now)
        for event, data in self._last:
            event[2] = data

    def _note(self, data: str, now: float) -> None:
        count = self._count(data)
        event: Event = [round(now - self.sent, 6), count, None if count is not None else data]
        self.events.append(event)
        if count is not None:
            self.tokens = max(self.tokens, count)
            self._last.append((event, data))

    def _count(self, data: str) -> Optional[int]:
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(chunk, dict) or chunk.get("error") is not None:
            return None
        for path in self._paths:
            value: Any = chunk
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
        return None


class Inbox:
    """What has arrived and is not read yet.

    All that is there is stamped first and read afterwards, a little at a time: under 64 users in
    step, an arrival would otherwise be stamped after the reading of those before it.
    """

    def __init__(self) -> None:
        self._waiting: Deque[Tuple[Callable[[Any, float], None], Any, float]] = deque()
        self._called = False
        self.arrivals = self.stamped = 0
        """How many there were, and how many of them the kernel has stamped."""

    def put(
        self, take: Callable[[Any, float], None], what: Any, at: Optional[float] = None
    ) -> None:
        """Stamp ``what`` where ``at`` is not given, to be given to ``take`` soon and in order."""
        self._waiting.append((take, what, time.monotonic() if at is None else at))
        self._call()

    def _call(self) -> None:
        if self._waiting and not self._called:
            self._called = True
            asyncio.get_event_loop().call_soon(self._read)

    def _read(self) -> None:
        self._called = False
        try:
            for _ in range(min(READ_AT_ONCE, len(self._waiting))):
                take, what, now = self._waiting.popleft()
                take(what, now)
        finally:
            self._call()


class Plain:
    """A connection without TLS whose arrivals the kernel has stamped, before anybody read them.

    So neither a busy machine nor what this program is at makes a stamp late. It is as much of a
    transport as ``Connection`` needs.
    """

    def __init__(self, opened: socket.socket, connection: Any) -> None:
        self._loop = asyncio.get_event_loop()
        self._socket = opened
        self._connection = connection
        self._unsent = b""
        self._lost = False
        with suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        with suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connection_made(self)
        self._loop.add_reader(opened.fileno(), self._readable)

    def write(self, data: bytes) -> None:
        """Send ``data``, what does not fit now later."""
        self._unsent += data
        self._send()

    def abort(self) -> None:
        """Close at once."""
        self._lose(None)

    def _send(self) -> None:
        if self._lost:
            return
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lose(error)
            return
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._socket.fileno(), self._send)
        else:
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            data, told, _, _ = self._socket.recvmsg(READ_BYTES, TOLD_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if data:
            self._connection.arrived(data, kernel_stamp(told))
        else:
            self._connection.eof_received()
            self._lose(None)

    def _lose(self, error: Optional[Exception]) -> None:
        if self._lost:
            return
        self._lost = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._loop.call_soon(self._connection.connection_lost, error)


def kernel_stamp(told: List[Tuple[int, int, bytes]]) -> Optional[float]:
    """Return when the kernel took the bytes in, on the monotonic clock; ``None``: not told."""
    for level, kind, data in told:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= TIMESPEC.size:
            seconds, nanoseconds = TIMESPEC.unpack_from(data)
            behind = time.time() - seconds - nanoseconds * 1e-9
            # A clock that was set in between tells nothing.
            return time.monotonic() - behind if 0 <= behind < MOST_BEHIND_S else None
    return None


class Connection(asyncio.Protocol):
    """One connection of one user; carries one request at a time."""

    def __init__(self, inbox: Inbox) -> None:
        self.open = False
        self._inbox = inbox
        self._transport: Any = None
        self._answer: Optional[Answer] = None
        self._done: Optional["asyncio.Future[None]"] = None
        self._reset()

    def _reset(self) -> None:
        self._rest = b""
        self._in_head = True
        self._keep = True
        self._left: Optional[int] = None
        """Bytes of the body or the chunk still to come; ``None``: until the end."""
        self._chunked = False
        self._chunk_state = "size"
        self._unpack: Any = None
        """Set where the server packs its answer although it was asked not to."""

    def connection_made(self, transport: Any) -> None:
        """Take the open connection."""
        self._transport = transport
        self.open = True

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Take the news that the connection is gone."""
        self.open = False
        reason = "the connection broke%s" % (": %s" % exc if exc else "")
        self._inbox.put(self._broken, reason)

    def eof_received(self) -> bool:
        """Take the server's end: that of an answer without a length, or one too early."""
        self.open = False
        self._inbox.put(self._take_end, None)
        return False

    def data_received(self, data: bytes) -> None:
        """Take what has arrived now."""
        self.arrived(data, None)

    def arrived(self, data: bytes, at: Optional[float]) -> None:
        """Take what has arrived, and when where that is known."""
        self._inbox.arrivals += 1
        self._inbox.stamped += at is not None
        self._inbox.put(self.take, data, at)

    def take(self, data: bytes, now: float) -> None:
        """Read what arrived at ``now``."""
        if self._answer is None:
            self.close()
            return
        try:
            self._read(data, now)
        except BrokenError as error:
            self._broken(str(error), now)

    def _take_end(self, _: None, now: float) -> None:
        complete = self._answer is not None and not self._in_head
        if complete and not self._chunked and self._left is None:
            self._finish(now)
        else:
            self._broken("the server closed the connection before the answer was complete", now)

    async def send(self, data: bytes, answer: Answer) -> None:
        """Send a request and wait for the end of its answer; raises ``BrokenError``."""
        if self._transport is None or not self.open:
            raise BrokenError("the connection is closed")
        self._reset()
        self._answer = answer
        self._done = asyncio.get_event_loop().create_future()
        answer.sent = time.monotonic()
        self._transport.write(data)
        try:
            await self._done
        except asyncio.CancelledError:
            self._keep = False
            raise
        finally:
            self._answer = self._done = None
            if not self._keep:
                self.close()

    def close(self) -> None:
        """Close the connection at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, now: float) -> None:
        if self._ends(now) and self._done is not None:
            self._done.set_result(None)

    def _broken(self, reason: str, now: float) -> None:
        self._keep = False
        if self._ends(now) and self._done is not None:
            self._done.set_exception(BrokenError(reason))

    def _ends(self, now: float) -> bool:
        """Note the end of the answer; ``False`` where it has ended already."""
        if self._answer is None or self._done is None or self._done.done():
            return False
        self._answer.ended = now
        return True

    # The answer's bytes.

    def _read(self, data: bytes, now: float) -> None:
        if self._in_head:
            self._rest += data
            head, mark, data = self._rest.partition(b"\r\n\r\n")
            if not mark:
                if len(self._rest) > MAX_HEAD_BYTES:
                    raise BrokenError("the server sent an endless head")
                return
            self._rest = b""
            if not self._read_head(head):
                self._read(data, now)
                return
        if self._chunked:
            self._read_chunks(data, now)
        else:
            self._read_plain(data, now)

    def _read_head(self, head: bytes) -> bool:
        """Read status and fields; ``False`` for an interim answer (100), which another follows."""
        lines = head.split(b"\r\n")
        words = lines[0].split(None, 2)
        if len(words) < 2 or words[0][:5] != b"HTTP/" or not words[1].isdigit():
            raise BrokenError("the server's answer is no HTTP: %r" % lines[0][:60])
        status = int(words[1])
        if 100 <= status < 200:
            return False
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            fields[name.strip().lower()] = value.strip().lower()
        self._in_head = False
        self._keep = words[0] == b"HTTP/1.1" and b"close" not in fields.get(b"connection", b"")
        self._chunked = b"chunked" in fields.get(b"transfer-encoding", b"")
        packed = fields.get(b"content-encoding", b"identity")
        if packed in (b"gzip", b"x-gzip", b"deflate"):
            self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif packed not in (b"", b"identity"):
            raise BrokenError("the server packed its answer: %r" % packed[:20])
        length = fields.get(b"content-length")
        self._left = int(length) if length is not None and length.isdigit() else None
        if self._answer is not None:
            self._answer.status = status
        return True

    def _read_plain(self, data: bytes, now: float) -> None:
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        self._pass_on(data, now)
        if self._left == 0:
            self._finish(now)

    def _pass_on(self, data: bytes, now: float) -> None:
        if self._unpack is not None:
            try:
                data = self._unpack.decompress(data, MAX_EVENT_BYTES)
            except zlib.error as error:
                raise BrokenError("the server's packed answer is damaged: %s" % error) from None
            if self._unpack.unconsumed_tail:
                raise BrokenError("the server sent an endless line")
        if data and self._answer is not None:
            self._answer.take(data, now)

    def _read_chunks(self, data: bytes, now: float) -> None:
        self._rest += data
        body = []
        while self._rest:
            if self._chunk_state == "data":
                part = self._rest[: self._left]
                self._rest = self._rest[len(part) :]
                self._left = (self._left or 0) - len(part)
                body.append(part)
                if self._left > 0:
                    break
                self._chunk_state = "end"
                continue
            line, mark, rest = self._rest.partition(b"\r\n")
            if not mark:
                if len(self._rest) > MAX_HEAD_BYTES:
                    raise BrokenError("the server sent an endless chunk size")
                break
            self._rest = rest
            if self._chunk_state == "end":
                self._chunk_state = "size"
            elif self._chunk_state == "trailer":
                if not line:
                    self._chunk_state = "over"
                    break
            else:
                self._begin_chunk(line)
        # Chunks that arrive together are one arrival.
        self._pass_on(b"".join(body), now)
        if self._chunk_state == "over":
            self._finish(now)

    def _begin_chunk(self, line: bytes) -> None:
        try:
            self._left = int(line.split(b";")[0], 16)
        except ValueError:
            raise BrokenError("the server sent a malformed chunk size: %r" % line[:20]) from None
        self._chunk_state = "data" if self._left else "trailer"


class Lag:
    """How late the event loop runs what is due: what a stamp may be wrong by.

    Ticks are due at fixed times, so that a long delay counts for all those that it delayed.
    """

    def __init__(self) -> None:
        self._late: List[float] = []
        self._due = 0.0

    def start(self) -> None:
        """Begin to tick."""
        self._due = time.monotonic() + TICK_S
        asyncio.get_event_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        while self._due <= now:
            self._late.append(now - self._due)
            self._due += TICK_S
        asyncio.get_event_loop().call_later(self._due - now, self._tick)

    def share(self, part: float) -> float:
        """Return the lag that this part of the ticks stays below."""
        late = sorted(self._late) or [0.0]
        return max(0.0, late[min(len(late) - 1, int(part * len(late)))])


def tls_of(given: Optional[Json]) -> Any:
    """Return the settings for TLS, ``None`` for plain connections."""
    if given is None:
        return None
    import ssl  # Not every Python of a host has it, and few loads need it.

    context = ssl.create_default_context(cadata=given["ca_pem"])
    if not given["verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Load:
    """The whole load of one run."""

    def __init__(self, given: Json, writer: Writer) -> None:
        self._given = given
        self._writer = writer
        self._todo: Deque[List[Any]] = deque(given["requests"])
        self._under_way: Dict[int, Answer] = {}
        self._begun = self._ended = self._tokens = 0
        self._start = 0.0
        self._tls = tls_of(given.get("tls"))
        self._inbox = Inbox()

    async def run(self) -> None:
        """Connect all users, send all requests, and tell how the generator itself did."""
        users = max(1, min(self._given["users"], len(self._todo)))
        # A user that cannot connect fails its requests one by one, so that all are accounted for.
        connections = await asyncio.gather(*(self._connect() for _ in range(users)))
        lag = Lag()
        lag.start()
        self._start, cpu = time.monotonic(), time.process_time()
        live = asyncio.ensure_future(self._tell())
        await asyncio.gather(*(self._user(connection) for connection in connections))
        live.cancel()
        elapsed = time.monotonic() - self._start
        self._put_live()
        self._writer.put(
            {
                "end": {
                    "elapsed_s": elapsed,
                    "cpu_share": (time.process_time() - cpu) / elapsed if elapsed > 0 else 0.0,
                    "lag_median_s": lag.share(0.5),
                    "lag_p95_s": lag.share(0.95),
                    "lag_max_s": lag.share(1.0),
                    "kernel_share": self._inbox.stamped / max(1, self._inbox.arrivals),
                }
            }
        )

    async def _open(self) -> Connection:
        loop = asyncio.get_event_loop()
        connection = Connection(self._inbox)
        address, port = self._given["address"], self._given["port"]
        if self._tls:
            await loop.create_connection(
                lambda: connection, address, port, ssl=self._tls, server_hostname=address
            )
            return connection
        failed: Optional[OSError] = None
        for family, kind, protocol, _, place in await loop.getaddrinfo(
            address, port, type=socket.SOCK_STREAM
        ):
            opened = socket.socket(family, kind, protocol)
            opened.setblocking(False)  # noqa: FBT003 -- has no name
            try:
                await loop.sock_connect(opened, place)
            except OSError as error:
                opened.close()
                failed = error
            except BaseException:
                opened.close()
                raise
            else:
                Plain(opened, connection)
                return connection
        raise failed or OSError("no address")

    async def _connect(self) -> Tuple[Optional[Connection], str]:
        where = "%s:%s" % (self._given["address"], self._given["port"])
        try:
            connection = await asyncio.wait_for(self._open(), self._given["connect_limit_s"])
        except asyncio.TimeoutError:
            return None, "%s did not accept in time" % where
        except OSError as error:
            reason = getattr(error, "verify_message", "") or error.strerror or error
            return None, "%s: %s" % (where, reason)
        return connection, ""

    async def _user(self, connected: Tuple[Optional[Connection], str]) -> None:
        connection, reason = connected
        duration_s = self._given.get("duration_s")
        while self._todo:
            if duration_s is not None and time.monotonic() - self._start >= duration_s:
                break
            number, prefix, index = self._todo.popleft()
            self._begun += 1
            if connection is None or not connection.open:
                connection, reason = await self._connect()
            answer = Answer(number, self._given["count_paths"], time.monotonic())
            self._under_way[number] = answer
            data = self._request(prefix + self._given["texts"][index])
            if connection is not None:
                reason = await self._send(connection, data, answer)
            del self._under_way[number]
            self._report(answer, reason)
        if connection is not None:
            connection.close()

    def _request(self, prompt: str) -> bytes:
        given = self._given
        template: str = given["template"]
        body = template.replace(given["mark"], json.dumps(prompt)[1:-1]).encode()
        fields = {
            "Host": given["authority"],
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            # A packer waits for more to pack: it would delay what is timed here.
            "Accept-Encoding": "identity",
            "Content-Length": str(len(body)),
        }
        fields.update(given.get("headers") or {})
        lines = ["%s %s HTTP/1.1" % (given["method"], given["path"])]
        lines += ["%s: %s" % item for item in fields.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body

    async def _send(self, connection: Connection, data: bytes, answer: Answer) -> str:
        limit_s = self._given["request_limit_s"]
        try:
            await asyncio.wait_for(connection.send(data, answer), limit_s)
        except BrokenError as error:
            return str(error)
        except asyncio.TimeoutError:
            return "no end within %g s" % limit_s
        return ""

    def _report(self, answer: Answer, error: str) -> None:
        now = answer.ended or time.monotonic()
        try:
            answer.end(now)
        except BrokenError as broken:
            error = error or str(broken)
        self._ended += 1
        self._tokens += answer.tokens
        self._writer.put(
            {
                "request": {
                    "number": answer.number,
                    "sent_at": round(answer.sent - self._start, 6),
                    "took_s": round(now - answer.sent, 6),
                    "status": answer.status,
                    "events": answer.events,
                    "body": answer.body.decode("utf-8", "replace"),
                    "error": error or None,
                }
            }
        )

    async def _tell(self) -> None:
        while True:
            self._put_live()
            await asyncio.sleep(LIVE_INTERVAL_S)

    def _put_live(self) -> None:
        tokens = self._tokens + sum(answer.tokens for answer in self._under_way.values())
        self._writer.put(
            {
                "live": {
                    "at": time.monotonic() - self._start,
                    "begun": self._begun,
                    "ended": self._ended,
                    "tokens": tokens,
                }
            }
        )


def main(given: Json) -> None:
    """Run one load."""
    # A collection in the middle would delay stamps; what a run keeps is bounded.
    gc.freeze()
    gc.disable()
    writer = Writer()
    asyncio.run(Load(given, writer).run())
    writer.close()


if __name__ == "__main__":
    main(json.loads(globals()["EAGLEMON_INPUT"]))
