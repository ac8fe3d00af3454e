"""Runs a ProxyCommand, and keeps what it says: ssh would show that on the terminal.

The library's own way mixes stderr with the data of the connection and tells none of it.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence

KEPT_BYTES = 2048
_LAST_LINES = 2
_END_LIMIT_S = 0.5
"""The words of a program come in about when its end does, not always before."""


class Proxy(asyncio.SubprocessProtocol):
    """A program that stands between this end and the host; ``socket`` is this side of it."""

    def __init__(self) -> None:
        self.socket, self._theirs = socket.socketpair()
        self.is_taken = False
        """Whether a connection has the socket, and will close it."""
        self._kept = b""
        self._ended = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None

    async def start(self, command: Sequence[str]) -> None:
        """Start ``command``; raises ``OSError`` where that cannot be done."""
        try:
            self._transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *command,
                stdin=self._theirs.fileno(),
                stdout=self._theirs.fileno(),
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError:
            self.socket.close()
            raise
        finally:
            self._theirs.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the end of what it writes to stderr."""
        del fd
        self._kept = (self._kept + data)[-KEPT_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended and its stderr is closed."""
        del exc
        self._ended.set()

    async def last_words(self) -> str:
        """Return how it ended and its last lines; empty while it runs and has said nothing."""
        await self._until_ended()
        return self.said

    @property
    def said(self) -> str:
        """How it ended, if it has, and its last lines, in words."""
        code = self._transport.get_returncode() if self._transport is not None else None
        lines = self._kept.decode("utf-8", "replace").strip().splitlines()
        words = " / ".join(line.strip() for line in lines[-_LAST_LINES:])
        if code is None:
            return f"ProxyCommand says: {words}" if words else ""
        how = f"ended with {code}" if code >= 0 else f"was ended by signal {-code}"
        return f"ProxyCommand {how}" + (f": {words}" if words else "")

    def end(self) -> None:
        """End it, unless it has ended."""
        if self._transport is not None:
            self._transport.close()

    async def close(self) -> None:
        """End it and wait until it has, for a moment."""
        if not self.is_taken:
            self.socket.close()
        self.end()
        if self._transport is not None:
            await self._until_ended()

    async def _until_ended(self) -> None:
        # One that runs on, or whose child holds stderr open, is not waited for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_LIMIT_S):
                await self._ended.wait()
