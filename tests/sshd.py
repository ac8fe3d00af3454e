"""A real OpenSSH sshd for tests: own keys, own configuration, loopback, ended with the test.

``async with sshd(folder) as server:`` or the plain ``start_sshd(folder)`` and ``server.stop()``.
Needs ``openssh-server`` (``apt-get install openssh-server``); nothing is skipped without it.
"""

import asyncio
import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglemon.core.hosts import HostSpec
from tests.ports import free_port

START_LIMIT_S = 30.0


@dataclass(slots=True)
class Sshd:
    """A running sshd."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def identity(self) -> Path:
        """Private key that may log in."""
        return self.folder / "client_key"

    @property
    def known_hosts(self) -> Path:
        """File with the server's key."""
        return self.folder / "known_hosts"

    @property
    def log(self) -> str:
        """What sshd has logged so far."""
        return (self.folder / "sshd.log").read_text()

    def spec(self, name: str = "box", *, env: dict[str, str] | None = None) -> HostSpec:
        """Return a host that logs in here, with nothing of ``~/.ssh``."""
        return HostSpec(
            name=name,
            address="127.0.0.1",
            port=self.port,
            user=getpass.getuser(),
            known_hosts=str(self.known_hosts),
            identity=str(self.identity),
            ssh_config="",
            env={"XDG_STATE_HOME": str(self.folder / "state"), **(env or {})},
        )

    def cut(self) -> None:
        """Kill the processes of all connections at once, as a cut network would."""
        self.stall()
        self._signal(signal.SIGKILL)

    def stall(self) -> None:
        """Stop the processes of all connections, as a network that swallows everything would."""
        # One that has just let somebody in makes another process, until it has been stopped.
        until = time.monotonic() + START_LIMIT_S
        while running := [pid for pid in self._processes() if not _is_stopped(pid)]:
            assert time.monotonic() < until, running
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """End a ``stall``."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End sshd and its connections."""
        self.cut()
        self.process.kill()
        self.process.wait()

    def _signal(self, number: int) -> None:
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _processes(self) -> list[int]:
        return _descendants(self.process.pid, name="sshd")


def start_sshd(folder: Path, *, extra: Sequence[str] = ()) -> Sshd:
    """Start sshd in ``folder``; ``extra`` are lines for its configuration."""
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise RuntimeError("there is no sshd here: apt-get install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd of Debian refuses to start without it
    folder.mkdir(parents=True, exist_ok=True)
    for key in ("host_key", "client_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", folder / key],
            check=True,
            stdin=subprocess.DEVNULL,
        )
    shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
    for _ in range(5):
        port = free_port()
        server = _try_start(program, folder, port, extra)
        if server is not None:
            return server
    raise RuntimeError(f"sshd does not start: {(folder / 'sshd.log').read_text()}")


@contextlib.asynccontextmanager
async def sshd(folder: Path, *, extra: Sequence[str] = ()) -> AsyncIterator[Sshd]:
    """Run sshd for the length of a block."""
    server = await asyncio.to_thread(start_sshd, folder, extra=extra)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


def _try_start(program: str, folder: Path, port: int, extra: Sequence[str]) -> Sshd | None:
    config = folder / "sshd_config"
    config.write_text(
        "\n".join(
            [
                *extra,
                f"Port {port}",
                "ListenAddress 127.0.0.1",
                f"HostKey {folder / 'host_key'}",
                f"AuthorizedKeysFile {folder / 'authorized_keys'}",
                "PidFile none",
                "StrictModes no",
                "UsePAM no",
                "PasswordAuthentication no",
                "PermitRootLogin prohibit-password",
                "PrintMotd no",
            ]
        )
        + "\n"
    )
    with (folder / "sshd.log").open("ab") as log:
        process = subprocess.Popen(
            [program, "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    key = (folder / "host_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key[0]} {key[1]}\n")
    until = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), 1.0) as one,
        ):
            if one.recv(4) == b"SSH-":
                return Sshd(folder=folder, port=port, process=process)
        time.sleep(0.02)
    process.kill()
    process.wait()
    return None


def _is_stopped(pid: int) -> bool:
    """Tell whether a process does nothing any more: stopped, ended, or gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in {"T", "Z", "X"}


def _descendants(pid: int, *, name: str) -> list[int]:
    """Return the processes below ``pid`` whose program name begins with ``name``."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            before, _, after = (entry / "stat").read_text().rpartition(")")
            program = before.partition("(")[2]
            parents.setdefault(int(after.split()[1]), []).append((int(entry.name), program))
    found, todo = [], [pid]
    while todo:
        for child, program in parents.get(todo.pop(), []):
            if program.startswith(name):
                found.append(child)
                todo.append(child)
    return found
