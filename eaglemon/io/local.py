"""The ``local`` transport: processes and sockets of this machine, for work on the host itself."""

import asyncio
import contextlib
import os
import signal
import sys
from typing import Any

from eaglemon.errors import HostError, LinkLostError
from eaglemon.io.commands import run_to_end
from eaglemon.io.transport import Completed

STDERR_KEPT_BYTES = 8192
_LIMIT_BYTES = 1 << 18
_CLOSE_GRACE_S = 0.1
"""A process that goes on for so long after its stdin was closed hangs, and is ended."""


class LocalTransport:
    """This machine as a host; it cannot be lost."""

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self._closed = asyncio.Event()

    async def connect(self) -> None:
        """Check that this machine can be a host."""
        self._must_be_linux()

    def _must_be_linux(self) -> None:
        if not sys.platform.startswith("linux"):
            raise HostError(
                f"this machine ({sys.platform}) cannot be a host: hosts are Linux",
                hint="add the GPU host to hosts.toml and reach it over ssh",
            )

    async def open_process(self, command: str) -> "LocalProcess":
        """Start ``command`` with ``sh``."""
        self._must_be_linux()
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=_LIMIT_BYTES, loop=loop),
                "sh",
                "-c",
                command,
                # Apart from the console's terminal: its Ctrl-C is not meant for this.
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"cannot start sh on {self.name}: {error}") from error
        process = asyncio.subprocess.Process(transport, protocol, loop)
        return LocalProcess(process, transport, self.name)

    async def open_stream(self, host: str, port: int) -> "LocalStream":
        """Connect to a TCP port of this machine's network."""
        self._must_be_linux()
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            raise HostError(f"cannot connect to {host}:{port} on {self.name}: {error}") from error
        return LocalStream(reader, writer)

    async def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        """Run ``command`` to its end; raises ``TimeLimitError`` after ``timeout_s``."""
        return await run_to_end(
            self.open_process, command, host=self.name, stdin=stdin, timeout_s=timeout_s
        )

    async def wait_closed(self) -> str:
        """Wait until ``close`` was called."""
        await self._closed.wait()
        return f"{self.name}: closed"

    async def close(self) -> None:
        """Mark the transport as closed; processes and streams are closed by their users."""
        self._closed.set()


class LocalProcess:
    """A process of this machine."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        transport: asyncio.SubprocessTransport,
        host: str,
    ) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise HostError(f"a process on {host} has no pipes")
        self._process, self._transport = process, transport
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._host = host
        self._kept = b""
        self._drain = asyncio.create_task(self._keep_stderr())

    async def communicate(self, stdin: bytes) -> Completed:
        """Send all of ``stdin`` and return what came, stderr cut to its end."""
        _, stdout, _ = await asyncio.gather(
            self._send_all(stdin), self._stdout.read(), asyncio.shield(self._drain)
        )
        return Completed(status=await self.wait(), stdout=stdout, stderr=self._kept)

    async def read(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes of stdout, ``b""`` at the end."""
        return await self._stdout.read(limit)

    async def write(self, data: bytes) -> None:
        """Send ``data`` to stdin; raises ``LinkLostError`` when the process reads no more."""
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except (OSError, RuntimeError) as error:
            raise LinkLostError(f"a process on {self._host} reads no more: {error}") from error

    def write_eof(self) -> None:
        """Close stdin."""
        if not self._stdin.is_closing():
            self._stdin.close()

    def stderr_tail(self) -> str:
        """Return the end of what was written to stderr."""
        return self._kept.decode("utf-8", "replace").strip()

    async def wait(self) -> int:
        """Return the exit status, 128 + signal when killed by one."""
        status = await self._process.wait()
        return 128 - status if status < 0 else status

    async def close(self) -> None:
        """Close stdin, then end the process and what it started in its session."""
        self.write_eof()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_GRACE_S):
                    await self._process.wait()
        finally:
            if self._transport.get_returncode() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    _kill_group(self._process.pid)
            # Whoever inherited the pipes may keep them open: they are closed here, not waited for.
            self._transport.close()
            self._drain.cancel()
            # Killed as it is, it is not left behind by a task that is cancelled once more.
            await _to_its_end(
                asyncio.gather(self._drain, self._process.wait(), return_exceptions=True)
            )

    async def _send_all(self, data: bytes) -> None:
        with contextlib.suppress(LinkLostError):
            await self.write(data)
        self.write_eof()

    async def _keep_stderr(self) -> None:
        while data := await self._stderr.read(4096):
            self._kept = (self._kept + data)[-STDERR_KEPT_BYTES:]


async def _to_its_end(work: asyncio.Future[Any]) -> None:
    """Wait for ``work``, and be cancelled only then."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise


def _kill_group(leader: int) -> None:
    """End a session's processes; there are such groups on POSIX alone."""
    if sys.platform != "win32":
        os.killpg(leader, signal.SIGKILL)


class LocalStream:
    """A TCP connection from this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes, ``b""`` at the end."""
        try:
            return await self._reader.read(limit)
        except OSError as error:
            raise LinkLostError(f"the connection broke: {error}") from error

    async def write(self, data: bytes) -> None:
        """Send ``data``."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise LinkLostError(f"the connection broke: {error}") from error

    def write_eof(self) -> None:
        """Close the sending side."""
        if self._writer.can_write_eof():
            self._writer.write_eof()

    async def close(self) -> None:
        """Close both sides."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
