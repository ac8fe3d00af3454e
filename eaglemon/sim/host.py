"""A simulated GPU host on loopback: a real SSH server whose commands are real processes.

Everything behind the connection is the product's own code (agent, supervisor, signals); only the
driver library and the engines are simulated. ``python -m eaglemon.sim.host`` keeps one running.
"""

import argparse
import asyncio
import contextlib
import getpass
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import asyncssh

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import HostError, UsageError
from eaglemon.sim.host_files import write_host_files
from eaglemon.sim.janitor import clean, janitor_environment

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_END_LIMIT_S = 15.0
HANG_UP_S = 5.0
"""A command that outlives the end of its input by so long is killed."""


class SimHost:
    """A simulated host; ``async with SimHost() as spec`` gives the ``HostSpec`` that reaches it.

    ``speed`` makes starts and stops that many times faster, ``env`` adds to the environment of
    everything that runs there. Leaving the block ends every process of the host, however detached,
    and removes its folder. Raises ``UsageError`` on Windows, ``HostError`` when it cannot listen.
    """

    def __init__(
        self,
        *,
        name: str = "sim",
        gpus: int = 8,
        first_gpu: int = 0,
        speed: float = 1.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._gpus = gpus
        self._first_gpu = first_gpu
        self._speed = speed
        self._extra = dict(env or {})
        self._server: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._sessions: set[asyncio.Task[object]] = set()
        self._janitor: asyncio.subprocess.Process | None = None
        self._folder: Path | None = None
        self._environment: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        """Folder of the host: its home; ``sim/`` in it holds the driver's state."""
        if self._folder is None:
            raise HostError("the simulated host is not running", hint="enter its block first")
        return self._folder

    @property
    def driver_folder(self) -> Path:
        """``EAGLEMON_SIM_DIR`` of the host, for switches such as ``hang``."""
        return self.folder / "sim"

    def cut(self) -> None:
        """Break every connection without a goodbye, as a lost network does."""
        for connection in tuple(self._connections):
            connection.abort()

    async def __aenter__(self) -> HostSpec:
        if sys.platform == "win32":
            raise UsageError(
                "the simulated host runs on Linux and macOS only",
                hint="start it under WSL, or name a host of your own",
            )
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="eaglemon-sim-"))
        try:
            # It cleans up even if this process is killed or its terminal is closed.
            self._janitor = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "eaglemon.sim.janitor",
                str(self._folder),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                env=janitor_environment(),
                start_new_session=True,
            )
            return await self._start(self._folder)
        except (OSError, asyncssh.Error) as error:
            await self._end()
            raise HostError(f"the simulated host cannot start: {error}") from error

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end()

    async def _start(self, folder: Path) -> HostSpec:
        self._environment = write_host_files(
            folder, gpus=self._gpus, first_gpu=self._first_gpu, speed=self._speed
        )
        self._environment.update(self._extra)
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        client_key = asyncssh.generate_private_key("ssh-ed25519")
        identity = folder / "client_key"
        client_key.write_private_key(str(identity))
        identity.chmod(0o600)
        authorized = asyncssh.import_authorized_keys(client_key.export_public_key().decode())
        self._server = await asyncssh.create_server(
            lambda: _Server(self._connections),
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=authorized,
            process_factory=self._run,
            encoding=None,
            keepalive_interval=0,
        )
        port = self._server.get_port()
        known_hosts = folder / "known_hosts"
        public = host_key.export_public_key().decode().strip()
        known_hosts.write_text(f"[127.0.0.1]:{port} {public}\n", "utf-8")
        return HostSpec(
            name=self._name,
            address="127.0.0.1",
            port=port,
            user=_user(),
            known_hosts=str(known_hosts),
            identity=str(identity),
            ssh_config="",
            source="simulated host",
        )

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run one command of a client with ``sh``, as sshd would with the user's shell."""
        command = process.command
        arguments = ["-c", command] if command else ["-s"]
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env=self._environment,
            start_new_session=True,
        )
        task = asyncio.current_task()
        if task is not None:
            self._sessions.add(task)
            task.add_done_callback(self._sessions.discard)
        feeding = asyncio.create_task(_feed(process, child))
        try:
            await asyncio.gather(
                _copy(child.stdout, process.stdout), _copy(child.stderr, process.stderr)
            )
            status = await child.wait()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await _hang_up(child)
        if status < 0:
            process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
        else:
            process.exit(status)

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        for connection in list(self._connections):
            connection.abort()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        janitor, self._janitor = self._janitor, None
        folder, self._folder = self._folder, None
        if janitor is not None:
            await _finish(janitor)
        if folder is not None and await asyncio.to_thread(folder.exists):
            await asyncio.to_thread(clean, folder)


async def _hang_up(child: asyncio.subprocess.Process) -> None:
    """End a session's command as a lost connection does: its input ends, then it is killed."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(HANG_UP_S):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


class _Server(asyncssh.SSHServer):
    """Lets keys in and forwards connections to loopback only."""

    def __init__(self, connections: set[asyncssh.SSHServerConnection]) -> None:
        self._connections = connections
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        return dest_host in _LOOPBACK


async def _feed(
    process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process
) -> None:
    """Copy the client's bytes to the command, and its end of file."""
    stdin = child.stdin
    if stdin is None:
        return
    try:
        while data := await process.stdin.read(65536):
            stdin.write(data)
            await stdin.drain()
    except (OSError, asyncssh.Error):
        # The command has closed its input, or the client is gone: both end the copying.
        return
    finally:
        stdin.close()


async def _copy(source: asyncio.StreamReader | None, sink: asyncssh.SSHWriter[bytes]) -> None:
    """Copy what the command writes to the client; when that is gone, only drain it."""
    open_ = True
    while source is not None and (data := await source.read(65536)):
        if not open_:
            continue
        try:
            sink.write(data)
            await sink.drain()
        except (OSError, asyncssh.Error):
            open_ = False


async def _finish(janitor: asyncio.subprocess.Process) -> None:
    if janitor.stdin is not None:
        janitor.stdin.close()
    try:
        async with asyncio.timeout(_END_LIMIT_S):
            await janitor.wait()
    except TimeoutError:
        janitor.kill()
        await janitor.wait()


def _user() -> str:
    """Return who logs in: any name will do, and a container's user may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "demo"


async def _serve(arguments: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    host = SimHost(name=arguments.name, gpus=arguments.gpus, speed=arguments.speed)
    async with host as spec:
        sys.stdout.write(
            f"simulated host {spec.name} with {arguments.gpus} GPUs, until Ctrl-C:\n\n"
            f"  ssh -F none -p {spec.port} -i {spec.identity} "
            f"-o UserKnownHostsFile={spec.known_hosts} {spec.user}@{spec.address}\n\n"
            f"driver state: {host.driver_folder}\n"
        )
        sys.stdout.flush()
        await stopping.wait()


def main(argv: list[str] | None = None) -> int:
    """Keep a simulated host running until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m eaglemon.sim.host")
    parser.add_argument("--name", default="sim")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--speed", type=float, default=1.0)
    asyncio.run(_serve(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
