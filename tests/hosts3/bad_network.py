"""A network that fails on command: a TCP proxy that cuts, stalls, delays and half-closes."""

import asyncio
import contextlib
import dataclasses
from pathlib import Path
from types import TracebackType

from eaglemon.core.hosts import HostSpec


class BadNetwork:
    """Stands between a client and a port of this machine: ``async with BadNetwork(port)``."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.connections = 0
        """How many were accepted so far."""
        self.delay_s = 0.0
        """How much later each piece arrives, in each direction."""
        self.refuses = False
        """New connections are closed at once."""
        self._target_port = target_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._upwards: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "BadNetwork":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refuses = True
        if self._server is not None:
            self._server.close()
        await _turn()  # what was accepted a moment ago begins, and is closed at once
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await _turn()  # what was aborted is closed

    def cut(self) -> None:
        """Reset all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Swallow everything from now on, with all connections open: a half-open link."""
        self._flowing.clear()

    def go_on(self) -> None:
        """End a stall."""
        self._flowing.set()

    def half_close(self) -> None:
        """Tell the hosts that the client sends no more; the other direction goes on."""
        for writer in self._upwards:
            with contextlib.suppress(OSError, RuntimeError):
                writer.write_eof()

    def before(self, spec: HostSpec, folder: Path) -> HostSpec:
        """Return ``spec`` reached through this network; its key is known under the new port."""
        known = Path(spec.known_hosts or "").read_text().replace(f":{spec.port} ", f":{self.port} ")
        file = folder / f"known_hosts_{self.port}"
        file.write_text(known)
        return dataclasses.replace(spec, port=self.port, known_hosts=str(file))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        serving = asyncio.current_task()
        assert serving is not None
        self._tasks.add(serving)
        try:
            if not self.refuses:
                # Only the end of this network cancels it, which asyncio would log as an error.
                with contextlib.suppress(asyncio.CancelledError):
                    await self._join(reader, writer)
        finally:
            self._tasks.discard(serving)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers.add(inner)
        self._upwards.add(inner)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, inner))
                both.create_task(self._pump(inner_reader, writer))
        finally:
            self._upwards.discard(inner)
            self._writers.discard(inner)
            inner.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
            writer.write_eof()


async def _turn() -> None:
    """Let the event loop do what it has put off, and what that puts off."""
    for _ in range(5):
        await asyncio.sleep(0)
