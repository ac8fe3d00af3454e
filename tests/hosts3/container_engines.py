"""Real container engines for tests: Podman, and a Docker daemon of their own; no registry is asked.

A container has no files of its own: this machine's programs are mounted into it, so that the
simulated engines run there. Needs root, and the Debian packages ``podman runc docker.io``.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import eaglemon

FOLDERS = ("usr", "etc", "tmp", "proc", "dev", "sys", "run", "root", "var")
LINKS = ("bin", "sbin", "lib", "lib64")
IMAGE = "eaglemon-test:1"
START_LIMIT_S = 30.0


@dataclass(slots=True)
class ContainerEngine:
    """``docker`` or ``podman`` with a storage of its own; ``tools`` goes first on the PATH."""

    name: str
    tools: Path
    _started: list[str] = field(default_factory=list)

    def call(self, *words: str, stdin: bytes = b"") -> str:
        """Run a command of the engine; raises with what it said."""
        done = subprocess.run(
            [str(self.tools / self.name), *words], input=stdin, capture_output=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.name} {words[0]}: {done.stderr.decode()}")
        return done.stdout.decode().strip()

    def start(
        self, *argv: str, env: Mapping[str, str] | None = None, mounts: tuple[Path, ...] = ()
    ) -> str:
        """Start a container on the host's network and return its name."""
        name = f"eaglemon-{secrets.token_hex(4)}"
        source = Path(eaglemon.__file__).parent.parent
        folders = {Path("/usr"), Path(sys.prefix), Path(sys.base_prefix), source, *mounts}
        given = [word for key, text in (env or {}).items() for word in ("-e", f"{key}={text}")]
        mounted = [word for one in sorted(folders) for word in ("-v", f"{one}:{one}")]
        # Limits as they are here: raising them needs a capability that CI may lack.
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        options = ["--network", "host", "--security-opt", "seccomp=unconfined", *limits]
        self.call("run", "-d", "--name", name, *options, *mounted, *given, IMAGE, *argv)
        self._started.append(name)
        return name

    def pid(self, name: str) -> int:
        """Return the host's pid of a container's first process."""
        return int(self.call("inspect", "--format", "{{.State.Pid}}", name))

    def end(self) -> None:
        """Remove the containers."""
        for name in self._started:
            with contextlib.suppress(RuntimeError):
                self.call("kill", name)
            with contextlib.suppress(RuntimeError):
                self.call("rm", "-f", name)
        self._started.clear()


@contextlib.contextmanager
def podman() -> Iterator[ContainerEngine]:
    """Offer Podman with images and containers below a folder of its own."""
    real = _program("podman")
    runtime = _program("runc")
    with tempfile.TemporaryDirectory(prefix="em-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        options = (
            f"--root {folder}/root --runroot {folder}/run --storage-driver vfs --runtime {runtime} "
            "--cgroup-manager cgroupfs --events-backend file"
        )
        engine = _engine(folder, "podman", f"exec {real} {options}")
        try:
            yield engine
        finally:
            engine.end()


@contextlib.contextmanager
def docker() -> Iterator[ContainerEngine]:
    """Run a Docker daemon below a folder of its own, without any network."""
    real, daemon = _program("docker"), _program("dockerd")
    with tempfile.TemporaryDirectory(prefix="em-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        socket = f"unix://{folder}/socket"
        argv = [daemon, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
        argv += ["-H", socket, "--pidfile", f"{folder}/pid", "--storage-driver", "vfs"]
        argv += ["--iptables=false", "--ip6tables=false", "--bridge=none"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            until = time.monotonic() + START_LIMIT_S
            while not (folder / "socket").exists():
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"dockerd does not start: {(folder / 'log').read_text()}")
                time.sleep(0.1)
            engine = _engine(folder, "docker", f"exec {real} -H {socket}")
            try:
                yield engine
            finally:
                engine.end()
        finally:
            process.terminate()
            process.wait()
            # The daemon leaves it mounted, and nothing below can be removed then.
            subprocess.run(["umount", "-q", folder / "exec/netns/default"], check=False)


def _engine(folder: Path, name: str, command: str) -> ContainerEngine:
    tools = folder / "tools"
    tools.mkdir()
    (tools / name).write_text(f'#!/bin/sh\n{command} "$@"\n')
    folder.chmod(0o755)
    for program in tools.iterdir():
        program.chmod(0o755)
    engine = ContainerEngine(name=name, tools=tools)
    engine.call("import", "-", IMAGE, stdin=_root())
    return engine


def _root() -> bytes:
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in FOLDERS:
            one = tarfile.TarInfo(name)
            one.type, one.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(one)
        for name in LINKS:
            one = tarfile.TarInfo(name)
            one.type, one.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(one)
    return data.getvalue()


def _program(name: str) -> str:
    if os.geteuid() != 0:
        raise RuntimeError("these tests need root")
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"there is no {name} here: apt-get install podman runc docker.io")
    return found
