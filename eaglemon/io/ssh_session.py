"""An SSH connection that is up, with its channels. Importing this loads asyncssh (170 ms)."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from types import TracebackType

import asyncssh

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import ForwardingRefusedError, HostError, LinkLostError
from eaglemon.io.ssh_errors import explain_loss
from eaglemon.io.ssh_login import Login
from eaglemon.io.ssh_proxy import Proxy
from eaglemon.io.transport import Asker, Completed

STDERR_KEPT_BYTES = 8192
TOO_FEW_SESSIONS = "its sshd refuses one more session: raise MaxSessions there (10 are enough)"
FORWARDING = "set AllowTcpForwarding to yes or local in its sshd_config, and see PermitOpen there"
_CLOSE_GRACE_S = 0.05
"""Whoever closes does not wait longer for the host to agree: it may hang."""


async def open_session(
    spec: HostSpec, *, ask: Asker | None, tell: Callable[[str], None]
) -> "SshSession":
    """Connect and log in; raises ``HostError`` that names the cause and the fix."""
    login = Login(spec, ask=ask, tell=tell)
    connection = await login.connect()
    return SshSession(
        spec.name,
        connection,
        login.lost,
        hops=login.hops,
        proxies=login.proxies,
        unused=login.unused,
    )


class SshSession:
    """One connection; all channels share it."""

    def __init__(
        self,
        name: str,
        connection: asyncssh.SSHClientConnection,
        lost: asyncio.Future[str],
        *,
        hops: Sequence[asyncssh.SSHClientConnection] = (),
        proxies: Sequence[Proxy] = (),
        unused: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.unused = tuple(unused)
        """What OpenSSH's configuration asks for and is not done here, in words."""
        self._hops = tuple(hops)
        """Connections to the jump hosts that this one goes through, the nearest first."""
        self._proxies = tuple(proxies)
        self._connection = connection
        self._lost = lost

    async def open_process(self, line: str) -> "SshProcess":
        """Start a command with the login shell."""
        with _Mapped(self):
            process = await self._live().create_process(line, encoding=None)
        return SshProcess(process, self)

    async def open_stream(self, host: str, port: int) -> "SshStream":
        """Connect to a TCP port as seen from the host."""
        with _Mapped(self, f"{host}:{port} on {self.name}"):
            reader, writer = await self._live().open_connection(host, port, encoding=None)
        return SshStream(reader, writer, self)

    async def wait_closed(self) -> str:
        """Wait until the connection is gone and return why."""
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        try:
            async with asyncio.timeout(_CLOSE_GRACE_S):
                await self._connection.wait_closed()
        except TimeoutError:
            self._connection.abort()
        for hop in reversed(self._hops):
            hop.abort()
        for proxy in self._proxies:
            await proxy.close()

    def loss(self) -> str | None:
        """Return why the connection ended, ``None`` while it is up."""
        return self._lost.result() if self._lost.done() else None

    def _live(self) -> asyncssh.SSHClientConnection:
        if (reason := self.loss()) is not None:
            raise LinkLostError(reason)
        return self._connection


class SshProcess:
    """A command on the host."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], session: "SshSession") -> None:
        self._process = process
        self._session = session
        self._kept = b""
        self._drain = asyncio.create_task(self._keep_stderr())

    async def communicate(self, stdin: bytes) -> Completed:
        """Send all of ``stdin`` and return what came, stderr cut to its end."""
        _, stdout, _ = await asyncio.gather(
            self._send_all(stdin), self._read_all(), asyncio.shield(self._drain)
        )
        return Completed(status=await self.wait(), stdout=stdout, stderr=self._kept)

    async def read(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes of stdout, ``b""`` at the end."""
        with _Mapped(self._session):
            return await self._process.stdout.read(limit)

    async def write(self, data: bytes) -> None:
        """Send ``data`` to stdin."""
        with _Mapped(self._session):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    def write_eof(self) -> None:
        """Close stdin."""
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()

    def stderr_tail(self) -> str:
        """Return the end of what was written to stderr."""
        return self._kept.decode("utf-8", "replace").strip()

    async def wait(self) -> int:
        """Return the exit status, 128 + signal when killed by one."""
        await self._process.wait_closed()
        if self._process.exit_signal is not None:
            return 128 + _signal_number(self._process.exit_signal[0])
        if self._process.exit_status is None:
            reason = self._session.loss()
            raise LinkLostError(reason or f"{self._session.name}: the channel was closed")
        return self._process.exit_status

    async def close(self) -> None:
        """Close the channel: the host's sshd then closes the command's pipes."""
        self._process.close()
        self._drain.cancel()
        await asyncio.gather(self._drain, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_GRACE_S):
                await self._process.wait_closed()

    async def _send_all(self, data: bytes) -> None:
        # A command may end without reading all; its status then tells more than this.
        with contextlib.suppress(LinkLostError):
            await self.write(data)
        self.write_eof()

    async def _read_all(self) -> bytes:
        parts = []
        while data := await self.read(65536):
            parts.append(data)
        return b"".join(parts)

    async def _keep_stderr(self) -> None:
        with contextlib.suppress(HostError), _Mapped(self._session):
            while data := await self._process.stderr.read(4096):
                self._kept = (self._kept + data)[-STDERR_KEPT_BYTES:]


class SshStream:
    """A TCP connection made by the host."""

    def __init__(
        self,
        reader: asyncssh.SSHReader[bytes],
        writer: asyncssh.SSHWriter[bytes],
        session: SshSession,
    ) -> None:
        self._reader, self._writer, self._session = reader, writer, session

    async def read(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes, ``b""`` at the end."""
        with _Mapped(self._session):
            return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        """Send ``data``."""
        with _Mapped(self._session):
            self._writer.write(data)
            await self._writer.drain()

    def write_eof(self) -> None:
        """Close the sending side."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    async def close(self) -> None:
        """Close both sides."""
        self._writer.close()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_CLOSE_GRACE_S):
                await self._writer.wait_closed()


class _Mapped:
    """Turns asyncssh's exceptions into ours."""

    def __init__(self, session: SshSession, target: str = "") -> None:
        self._session = session
        self._target = target

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, asyncssh.ChannelOpenError) and self._session.loss() is None:
            if self._target and error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                raise ForwardingRefusedError(
                    f"sshd refuses to connect to {self._target} ({error.reason})", hint=FORWARDING
                ) from error
            what = self._target or f"a channel to {self._session.name}"
            hint = "" if self._target else TOO_FEW_SESSIONS
            raise HostError(f"cannot open {what}: {error.reason}", hint=hint) from error
        if isinstance(error, asyncssh.Error | OSError):
            name = self._session.name
            raise LinkLostError(self._session.loss() or explain_loss(name, error)) from error


def _signal_number(name: str) -> int:
    found = signal.Signals.__members__.get(f"SIG{name}")
    return int(found) if found is not None else 0
