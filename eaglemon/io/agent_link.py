"""A conversation with the agent of one host, over a process of its transport.

One task reads frames and hands them on, one writes what is queued; both end with the link. Each
stream has its own bounded queue, so that a slow reader of one never holds up another: GPU samples
keep the latest only, run changes are merged per run, and of a log or of what a program tells the
agent sends no more than a window ahead of the reader.
"""

import asyncio
import contextlib
import itertools
import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from eaglemon.core.frames import Frame, FrameDecoder, encode_frame
from eaglemon.core.hosts import HostFacts, HostSample
from eaglemon.core.runs import DamagedRun, HostCheck, LogChunk, RunRecord, RunRequest
from eaglemon.errors import AgentError, HostError, LinkLostError, TimeLimitError
from eaglemon.io import agent_values as values
from eaglemon.io.agent_start import (
    NO_PYTHON_STATUS,
    quick_start_command,
    start_bytes,
    start_command,
)
from eaglemon.io.agent_streams import (
    FrameStream,
    Merge,
    error_of,
    item_of,
    keep_all,
    keep_latest,
    merge_runs,
)
from eaglemon.io.host_link import (
    LOG_WINDOW_BYTES,
    PROGRAM_WINDOW_BYTES,
    AgentNotStartedError,
    NoPythonError,
    RunChanges,
)
from eaglemon.io.transport import ByteProcess, Transport

_REQUEST_LIMIT_S = 30.0
_START_LIMIT_S = 60.0
"""Above the agent's own limits of a start: 35 s."""
_READ_BYTES = 1 << 16


class AgentLink:
    """The agent of one host; made by ``open``."""

    def __init__(self, process: ByteProcess, host: str) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._host = host
        self._decoder = FrameDecoder()
        self._numbers = itertools.count(1)
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[Mapping[str, object]]] = {}
        self._streams: dict[int, FrameStream] = {}
        self._hello: asyncio.Future[HostFacts] = loop.create_future()
        self._ended: asyncio.Future[str] = loop.create_future()
        self._lacks_python = False
        self.damaged_runs: dict[str, DamagedRun] = {}
        """What ``watch_runs`` left out, by id."""
        self.records_silent: str | None = None
        """That the host's file system of run records does not answer, and for how long."""
        self._reader = asyncio.create_task(self._read(), name=f"{host}: agent reader")
        self._writer = asyncio.create_task(self._write(), name=f"{host}: agent writer")

    @classmethod
    async def open(
        cls,
        transport: Transport,
        *,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 20.0,
    ) -> "AgentLink":
        """Start the agent and wait for its hello; raises ``HostError`` in words."""
        await transport.connect()
        with contextlib.suppress(AgentNotStartedError):
            command = quick_start_command(python=python, env=env, to=transport)
            return await cls._open(transport, command, timeout_s)
        return await cls._open(transport, start_command(python=python, env=env), timeout_s)

    @classmethod
    async def _open(cls, transport: Transport, command: str, timeout_s: float) -> "AgentLink":
        host = transport.name
        link: AgentLink | None = None
        try:
            async with asyncio.timeout(timeout_s):
                # An sshd that has logged us in may still never open the channel.
                process = await transport.open_process(command)
                link = cls(process, host)
                link._outgoing.put_nowait(start_bytes())
                await asyncio.shield(link._hello)
        except TimeoutError as error:
            if link is not None:
                await link.close()
            raise HostError(
                f"the agent on {host} did not start within {timeout_s:g} s",
                hint="see whether its login shell or its home hangs",
            ) from error
        except BaseException:
            if link is not None:
                await link.close()
            raise
        return link

    @property
    def facts(self) -> HostFacts:
        """What the agent said of its host when it started."""
        return self._hello.result()

    async def ping(self) -> float:
        """Return the host's clock (unix seconds)."""
        return values.take_number(await self._request("ping"), "at")

    async def watch_gpus(
        self, *, interval_s: float = 1.0, processes_interval_s: float = 2.0
    ) -> AsyncGenerator[HostSample, None]:
        """Yield samples; a slow reader gets the latest only."""
        frames = self._stream(
            "gpus.watch",
            keep_latest,
            interval_s=interval_s,
            processes_interval_s=processes_interval_s,
        )
        async with aclosing(frames):
            async for frame in frames:
                yield values.decode_sample(item_of(frame))

    async def watch_runs(self, *, interval_s: float = 0.2) -> AsyncGenerator[RunChanges, None]:
        """Yield all runs, then what changed; a slow reader gets the changes merged.

        While the host cannot read them an empty change comes each second: see ``records_silent``.
        """
        frames = self._stream("runs.watch", merge_runs, interval_s=interval_s)
        async with aclosing(frames):
            async for frame in frames:
                item = item_of(frame)
                silent = item.get("silent")
                self.records_silent = str(silent) if silent else None
                gone = tuple(str(run_id) for run_id in values.take_sequence(item, "gone"))
                for run_id in gone:
                    self.damaged_runs.pop(run_id, None)
                found = values.take_sequence(item, "runs")
                runs = values.decode_runs(found, self._damaged_run_seen)
                for run in runs:
                    self.damaged_runs.pop(run.record.id, None)
                yield runs, gone

    def _damaged_run_seen(self, run: DamagedRun) -> None:
        self.damaged_runs[run.id] = run

    async def start_run(self, request: RunRequest) -> RunRecord:
        """Start a server; returns once its process is known.

        Raises ``AgentError`` of kind ``spawn-failed``, ``run-exists`` or ``state-not-writable``,
        and ``port-in-use`` or ``gpu-in-use`` where another console was a moment earlier. After kind
        ``spawn-late``, ``LinkLostError`` or ``TimeLimitError`` it may begin all the same.
        """
        run = values.encode_request(request)
        answer = await self._request("run.start", timeout_s=_START_LIMIT_S, run=run)
        return values.decode_record(answer)

    async def stop_run(self, run_id: str, *, grace_s: float) -> None:
        """Begin to stop a run; ``RunStatus.stop`` tells how it goes."""
        await self._request("run.stop", run_id=run_id, grace_s=grace_s)

    async def forget_run(self, run_id: str) -> None:
        """Remove the records and the log of a run that has ended."""
        await self._request("run.forget", run_id=run_id)

    async def follow_log(
        self, run_id: str, *, offset: int = 0, ahead_bytes: int = LOG_WINDOW_BYTES
    ) -> AsyncGenerator[LogChunk, None]:
        """Yield the log's bytes from ``offset`` on, until the run has ended and all was read.

        No more than ``ahead_bytes`` are sent ahead of the reader.
        Raises ``AgentError`` of kind ``log-missing`` or ``log-unreadable``, also in the middle.
        """
        frames = self._stream(
            "log.follow",
            keep_all,
            run_id=run_id,
            host=self._host,
            offset=offset,
            window=ahead_bytes,
        )
        async with aclosing(frames):
            async for frame in frames:
                item = item_of(frame)
                yield LogChunk(
                    offset=int(values.take_number(item, "offset")),
                    data=frame.blob,
                    restarted=item.get("restarted") is True,
                    ended=item.get("ended") is True,
                )

    async def log_tail(self, run_id: str, *, lines: int) -> int:
        """Return the offset at which the last ``lines`` lines of the log begin."""
        answer = await self._request("log.tail", run_id=run_id, host=self._host, lines=lines)
        return int(values.take_number(answer, "offset"))

    async def check_host(
        self,
        *,
        paths: Sequence[str] = (),
        port: int | None = None,
        argv: Sequence[str] = (),
        python: str | None = None,
        package: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> HostCheck:
        """Return what the host says of a launch's needs; ``env`` is the profile's (its PATH)."""
        answer = await self._request(
            "host.check",
            paths=list(paths),
            port=port,
            argv=list(argv),
            python=python,
            package=package,
            env=dict(env or {}),
        )
        return values.decode_check(answer)

    async def run_program(
        self,
        source: bytes,
        *,
        argv: Sequence[str] = (),
        input: object = None,  # noqa: A002 -- as the protocol calls it
        python: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Mapping[str, object], None]:
        """Run Python source on the host in a process of its own and yield what it tells.

        It finds ``input`` as the JSON bytes ``EAGLEMON_INPUT`` and prints one JSON object a line.
        ``python`` is an interpreter of the host, the agent's own by default, ``env`` is added to
        its environment. Closing the generator kills it, as does the end of the link. Raises
        ``AgentError`` (``spawn-failed``; ``program-failed`` with the end of its stderr).
        """
        frames = self._stream(
            "program.run",
            keep_all,
            zlib.compress(source, 9),
            argv=list(argv),
            input=input,
            python=python,
            env=dict(env or {}),
            window=PROGRAM_WINDOW_BYTES,
        )
        async with aclosing(frames):
            async for frame in frames:
                yield item_of(frame)

    async def closed(self) -> str:
        """Wait until the link has ended and return why."""
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End the agent; servers keep running, the transport stays open."""
        self._fail(f"the link to {self._host} was closed")
        self._reader.cancel()
        self._writer.cancel()
        await asyncio.gather(self._reader, self._writer, return_exceptions=True)
        self._process.write_eof()
        await self._process.close()

    async def _request(
        self, op: str, *, timeout_s: float = _REQUEST_LIMIT_S, **arguments: object
    ) -> Mapping[str, object]:
        answer: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        number = self._post(op, b"", **arguments)
        self._answers[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            why = f": {self.records_silent}" if self.records_silent is not None else ""
            raise TimeLimitError(
                f"the agent on {self._host} did not answer {op} within {timeout_s:g} s{why}"
            ) from error
        finally:
            self._answers.pop(number, None)

    async def _stream(
        self, op: str, merge: Merge, blob: bytes = b"", **arguments: object
    ) -> AsyncGenerator[Frame, None]:
        stream = FrameStream(merge)
        number = self._post(op, blob, **arguments)
        self._streams[number] = stream
        window, taken = arguments.get("window"), 0
        try:
            while (frame := await stream.next()) is not None:
                yield frame
                # Of a log the agent counts its bytes, of a program what it tells.
                taken += len(frame.blob) or frame.head_bytes
                if isinstance(window, int) and taken >= min(window, LOG_WINDOW_BYTES) // 4:
                    self._post("more", target=number, bytes=taken)
                    taken = 0
        finally:
            if self._streams.pop(number, None) is not None and not self._ended.done():
                self._post("cancel", target=number)

    def _post(self, op: str, blob: bytes = b"", **arguments: object) -> int:
        if self._ended.done():
            raise LinkLostError(self._ended.result())
        number = next(self._numbers)
        self._outgoing.put_nowait(encode_frame({"id": number, "op": op, **arguments}, blob))
        return number

    async def _write(self) -> None:
        try:
            while True:
                await self._process.write(await self._outgoing.get())
        except HostError:
            # The reader's side knows better why; it also says so when the agent never started.
            await asyncio.wait([self._reader])

    async def _read(self) -> None:
        try:
            while data := await self._process.read(_READ_BYTES):
                for frame in self._decoder.feed(data):
                    self._take(frame)
            reason = await self._end_reason()
        except AgentError as error:
            reason = f"{self._host}: {error}"
        except HostError as error:
            reason = str(error)
        self._fail(reason)

    def _take(self, frame: Frame) -> None:
        head = frame.head
        if not self._hello.done():
            self._hello.set_result(values.decode_facts(head.get("hello")))
            return
        number = head.get("id")
        if not isinstance(number, int):
            raise AgentError(f"the agent on {self._host} sent a frame without id", kind="protocol")
        stream = self._streams.get(number)
        if "item" in head:
            if stream is not None:
                stream.push(frame)
            return
        error = error_of(frame)
        if stream is not None:
            del self._streams[number]
            stream.end(error)
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            ok = head.get("ok")
            if error is None and not isinstance(ok, Mapping):
                error = AgentError("the agent sent an empty answer", kind="protocol")
            if error is not None:
                answer.set_exception(error)
            elif isinstance(ok, Mapping):
                answer.set_result(ok)

    def _fail(self, reason: str) -> None:
        if self._ended.done():
            return
        self._ended.set_result(reason)
        if not self._hello.done():
            kind = NoPythonError if self._lacks_python else AgentNotStartedError
            self._hello.set_exception(kind(reason))
            # It may be that nobody waits for it any more.
            self._hello.exception()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LinkLostError(reason))
        for stream in self._streams.values():
            stream.end(LinkLostError(reason))
        self._streams.clear()

    async def _end_reason(self) -> str:
        try:
            async with asyncio.timeout(2.0):
                status = await self._process.wait()
        except TimeoutError:
            return f"the agent on {self._host} closed its output"
        before = self._decoder.noise.decode("utf-8", "replace").strip()[-500:]
        said = self._process.stderr_tail() or before
        if status == NO_PYTHON_STATUS and not self._decoder.started:
            self._lacks_python = True
            return str(_no_python(self._host, said))
        ended = "ended" if self._decoder.started else "did not start"
        words = f": {said}" if said else ""
        return f"the agent on {self._host} {ended} (status {status}){words}"


def _no_python(host: str, said: str) -> HostError:
    return HostError(
        f"no python3 on {host} ({said})",
        hint="install python3 or set python = ... for this host in hosts.toml",
    )
