"""The ``ssh`` transport: one connection, all channels share it.

``~/.ssh/config``, the key agent and known_hosts count as they do for OpenSSH's client. asyncssh is
imported when the first connection is made: the console paints before that.
"""

import asyncio
import base64
from collections.abc import Callable
from typing import TYPE_CHECKING

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError
from eaglemon.io.commands import run_to_end
from eaglemon.io.transport import Asker, Completed, Teller

if TYPE_CHECKING:
    from eaglemon.io.ssh_session import SshProcess, SshSession, SshStream

_UNSAFE_IN_QUOTES = frozenset("'\\!\n\r")


class SshTransport:
    """A host reached over SSH."""

    def __init__(
        self, spec: HostSpec, *, ask: Asker | None = None, tell: Teller | None = None
    ) -> None:
        """``ask`` asks about unknown keys and passphrases; without it they are refused."""
        self.name = spec.name
        self._spec = spec
        self._session: SshSession | None = None
        self._lock = asyncio.Lock()
        self._ask = ask
        self._tell = tell
        self._also_tell: Callable[[str], None] | None = None

    def tells(self, tell: Callable[[str], None]) -> None:
        """Say with ``tell`` what a person has to do: touch a security key."""
        self._also_tell = tell

    def _say(self, text: str) -> None:
        if self._tell is not None and text:
            self._tell(self.name, text)
        if self._also_tell is not None:
            self._also_tell(text)

    @property
    def unused_settings(self) -> tuple[str, ...]:
        """What OpenSSH's configuration asks for and is not done here, in words."""
        return self._session.unused if self._session is not None else ()

    async def connect(self) -> None:
        """Connect and log in; raises ``HostError`` that names the cause and the fix."""
        from eaglemon.io.ssh_session import open_session  # noqa: PLC0415 -- loads asyncssh

        async with self._lock:
            if self._session is None:
                self._session = await open_session(self._spec, ask=self._ask, tell=self._say)

    async def open_process(self, command: str) -> "SshProcess":
        """Start ``command`` with the host's ``sh``, whatever the login shell is."""
        return await self._live().open_process(quote_for_login_shell(command))

    async def open_stream(self, host: str, port: int) -> "SshStream":
        """Connect to a TCP port as seen from the host."""
        return await self._live().open_stream(host, port)

    async def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        """Run ``command`` to its end; raises ``TimeLimitError`` after ``timeout_s``."""
        return await run_to_end(
            self.open_process, command, host=self.name, stdin=stdin, timeout_s=timeout_s
        )

    async def wait_closed(self) -> str:
        """Wait until the connection is gone and return why."""
        if self._session is None:
            return f"{self.name}: not connected"
        return await self._session.wait_closed()

    async def close(self) -> None:
        """Close the connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _live(self) -> "SshSession":
        if self._session is None:
            raise HostError(f"{self.name} is not connected")
        return self._session


def quote_for_login_shell(command: str) -> str:
    """Return a line that runs ``command`` with ``sh`` under any login shell.

    fish and csh read quotes and backslashes otherwise than sh: what they would misread is sent as
    base64.
    """
    if not _UNSAFE_IN_QUOTES & set(command):
        return f"exec sh -c '{command}'"
    packed = base64.b64encode(command.encode()).decode()
    return f"exec sh -c 'eval \"$(echo {packed} | base64 -d)\"'"
