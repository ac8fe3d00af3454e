"""An SSH connection that is up, with its channels. Importing this loads asyncssh (170 ms)."""

import asyncio
import contextlib
import signal
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncssh

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError, LinkLostError
from eaglemon.io.ssh_errors import Offered, Target, explain_connect, explain_loss
from eaglemon.io.transport import Completed

CONNECT_LIMIT_S = 15.0
KEEPALIVE_S = 5.0
KEEPALIVE_MISSES = 2
STDERR_KEPT_BYTES = 8192
_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")
_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")


async def open_session(spec: HostSpec) -> "SshSession":
    """Connect and log in; raises ``HostError`` that names the cause and the fix."""
    address = spec.address or spec.name
    options = _options(spec)
    offered = Offered()
    try:
        # In a thread: reads files, and runs what "Match exec" names.
        target = await asyncio.to_thread(_resolve, spec, address, options)
    except (OSError, ValueError) as error:
        raise explain_connect(_unresolved(spec, address), error, offered) from error
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Client(asyncssh.SSHClient):
        """Notes what the library does not put into its exceptions."""

        def validate_host_public_key(
            self, host: str, addr: str, port: int, key: asyncssh.SSHKey
        ) -> bool:
            """Refuse a key that known_hosts does not have, and keep it for the message."""
            offered.note(host, addr, port, key)
            return False

        def connection_lost(self, exc: Exception | None) -> None:
            """Keep why the connection ended."""
            if not lost.done():
                lost.set_result(explain_loss(spec.name, exc))

    # Always a list or a function: asyncssh takes None, which the configuration can lead to, as
    # "do not check".
    options["known_hosts"] = list(target.known_hosts) if target.has_known_hosts else _nothing_known
    try:
        async with asyncio.timeout(CONNECT_LIMIT_S):
            connection = await asyncssh.connect(address, client_factory=Client, **options)
    except (OSError, ValueError, asyncssh.Error) as error:
        raise explain_connect(target, error, offered) from error
    return SshSession(spec.name, connection, lost)


class SshSession:
    """One connection; all channels share it."""

    def __init__(
        self, name: str, connection: asyncssh.SSHClientConnection, lost: asyncio.Future[str]
    ) -> None:
        self.name = name
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
            async with asyncio.timeout(1.0):
                await self._connection.wait_closed()
        except TimeoutError:
            self._connection.abort()

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
            async with asyncio.timeout(0.3):
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
            async with asyncio.timeout(0.3):
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
            what = self._target or f"a channel to {self._session.name}"
            raise HostError(f"cannot open {what}: {error.reason}") from error
        if isinstance(error, asyncssh.Error | OSError):
            name = self._session.name
            raise LinkLostError(self._session.loss() or explain_loss(name, error)) from error


def _options(spec: HostSpec) -> dict[str, Any]:
    options: dict[str, Any] = {
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVE_MISSES,
        "connect_timeout": CONNECT_LIMIT_S,
        "login_timeout": CONNECT_LIMIT_S,
        # Commands get no terminal, whatever RequestTTY says.
        "request_pty": False,
    }
    if spec.ssh_config == "":
        options["config"] = None
    elif spec.ssh_config is not None:
        options["config"] = [str(_existing(spec, spec.ssh_config, "ssh_config"))]
    if spec.user is not None:
        options["username"] = spec.user
    if spec.port is not None:
        options["port"] = spec.port
    if spec.identity is not None:
        options["client_keys"] = [str(_existing(spec, spec.identity, "identity"))]
        # The key agent may hold it unlocked.
        options["ignore_encrypted"] = True
    return options


def _resolve(spec: HostSpec, address: str, settings: dict[str, Any]) -> Target:
    """Return what the configuration makes of a host."""
    options = asyncssh.SSHClientConnectionOptions(host=address, **settings)
    if spec.known_hosts is not None:
        files = [str(_existing(spec, spec.known_hosts, "known_hosts"))]
    elif isinstance(options.known_hosts, list) and options.known_hosts:
        files = [str(Path(str(file)).expanduser()) for file in options.known_hosts]
    else:
        files = [str(Path(file).expanduser()) for file in _KNOWN_HOSTS]
    if spec.identity is not None:
        keys = [spec.identity]
    else:
        keys = _configured_keys(options) or list(_KEYS)
    paths = [Path(key).expanduser() for key in keys]
    return Target(
        name=spec.name,
        address=options.host,
        port=options.port,
        user=options.username,
        known_hosts=tuple([file for file in files if Path(file).is_file()] or files[:1]),
        has_known_hosts=any(Path(file).is_file() for file in files),
        keys=tuple(str(path) for path in paths if path.is_file()),
    )


def _unresolved(spec: HostSpec, address: str) -> Target:
    return Target(
        name=spec.name,
        address=address,
        port=spec.port or 22,
        user=spec.user or "",
        known_hosts=(),
        has_known_hosts=False,
        keys=(),
    )


def _nothing_known(
    host: str, address: str, port: int | None
) -> tuple[list[str], list[str], list[str]]:
    """Answer for a client without any known_hosts file: no key is trusted."""
    return [], [], []


def _existing(spec: HostSpec, text: str, key: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise HostError(
            f"{key} of host {spec.name} names {path}, which is no file",
            hint=f"correct {key} in {spec.source or 'hosts.toml'}",
        )
    return path


def _configured_keys(options: asyncssh.SSHClientConnectionOptions) -> list[str]:
    files = options.config.get("IdentityFile", ())
    return [str(file) for file in files] if isinstance(files, list) else []


def _signal_number(name: str) -> int:
    found = signal.Signals.__members__.get(f"SIG{name}")
    return int(found) if found is not None else 0
