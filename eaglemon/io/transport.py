"""What a connection to a host offers; ``local`` and ``ssh`` are its two kinds.

Errors: every method raises ``HostError`` (or ``LinkLostError`` once connected) in words.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from eaglemon.core.hosts import HostQuestion

Asker = Callable[[HostQuestion], Awaitable[str | None]]
"""Asks a person; ``None`` is a refusal."""
Teller = Callable[[str, str], None]
"""Says at a host's name what a person has to do."""


class ByteStream(Protocol):
    """A two-way stream of bytes: a process's stdin and stdout, or a TCP connection."""

    async def read(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes, ``b""`` at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send ``data`` and wait while the other side is slow."""
        ...

    def write_eof(self) -> None:
        """Close the sending side."""
        ...

    async def close(self) -> None:
        """Close both sides; never raises."""
        ...


class ByteProcess(ByteStream, Protocol):
    """A command on the host with its stdin and stdout."""

    def stderr_tail(self) -> str:
        """Return the last lines the command wrote to stderr."""
        ...

    async def wait(self) -> int:
        """Return the exit status (128 + signal when killed by one)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that has ended."""

    status: int
    stdout: bytes
    stderr: bytes


class Transport(Protocol):
    """A connection to one host; all channels share it."""

    @property
    def name(self) -> str:
        """Name of the host, for messages."""
        ...

    async def connect(self) -> None:
        """Connect; does nothing when connected."""
        ...

    async def open_process(self, command: str) -> ByteProcess:
        """Start ``command`` with the host's ``sh``."""
        ...

    async def open_stream(self, host: str, port: int) -> ByteStream:
        """Connect to a TCP port as seen from the host."""
        ...

    async def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        """Run ``command`` to its end."""
        ...

    async def wait_closed(self) -> str:
        """Wait until the connection is gone and return why, in words."""
        ...

    async def close(self) -> None:
        """Close the connection; never raises."""
        ...


@runtime_checkable
class TellingTransport(Protocol):
    """A transport that may have to wait for a person while it connects."""

    def tells(self, tell: Callable[[str], None]) -> None:
        """Say with ``tell`` what it waits for: a touch of a security key."""
        ...


@runtime_checkable
class ConfiguredTransport(Protocol):
    """A transport with a configuration of its own, not all of which may count."""

    @property
    def unused_settings(self) -> tuple[str, ...]:
        """What is configured and not done, in words; known once connected."""
        ...
