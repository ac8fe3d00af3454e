"""Simulated engines as real processes, without SSH between."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from eaglemon.sim.memory import write_gpus
from eaglemon.sim.process import is_alive
from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 60.0

SGLANG_EAGLE3 = [
    "--model-path",
    "/models/Qwen3-8B",
    "--enable-metrics",
    "--speculative-algorithm",
    "EAGLE3",
    "--speculative-draft-model-path",
    "/models/draft",
    "--speculative-num-steps",
    "5",
    "--speculative-eagle-topk",
    "1",
    "--speculative-num-draft-tokens",
    "6",
]
VLLM_EAGLE3 = [
    "serve",
    "/models/Qwen3-8B",
    "--served-model-name",
    "tiny",
    "--speculative-config",
    '{"method":"eagle3","model":"/models/draft","num_speculative_tokens":3}',
]


def until(check: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Poll until ``check`` gives something true."""
    deadline = time.monotonic() + limit_s
    while not check():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.02)


class Engine:
    """One running simulated engine, leader of its own group."""

    def __init__(self, folder: Path, kind: str, arguments: list[str], env: dict[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = folder / f"{kind}-{self.port}.log"
        environment = {**os.environ, "EAGLEMON_SIM_DIR": str(folder / "sim"), **env}
        environment.setdefault("EAGLEMON_SIM_SPEED", "20")
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "eaglemon.sim.engine",
                    kind,
                    *arguments,
                    "--port",
                    str(self.port),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_bytes().decode()

    @property
    def lines(self) -> list[str]:
        return self.log.replace("\r", "\n").splitlines()

    def processes(self) -> list[int]:
        """Living processes of the group."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[2]) == self.process.pid and is_alive(int(entry.name), None):
                found.append(int(entry.name))
        return sorted(found)

    def titles(self) -> dict[str, int]:
        """Command lines of the group, without padding, and their pids."""
        return {
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .rstrip(b"\0")
            .replace(b"\0", b" ")
            .decode(): pid
            for pid in self.processes()
        }

    def ready(self) -> "Engine":
        """Wait until the log says so."""
        marks = ("fired up and ready", "Application startup complete")
        mark = marks[0] if "sglang" in self.log_path.name else marks[1]
        until(lambda: mark in self.log or self.process.poll() is not None, f"{mark}: {self.log}")
        assert self.process.poll() is None, self.log
        return self

    def wait(self, limit_s: float = LIMIT_S) -> int:
        return self.process.wait(limit_s)

    def get(self, path: str, timeout_s: float = LIMIT_S) -> httpx.Response:
        return httpx.get(self.url + path, timeout=timeout_s)

    def post(self, path: str, body: dict[str, object]) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=LIMIT_S)

    def status(self, ask: Callable[[], httpx.Response]) -> int | None:
        """Return the status of an answer, ``None`` where the server has ended by now."""
        try:
            return ask().status_code
        except httpx.TransportError:
            self.wait()
            return None

    def refuses_until(self, mark: str) -> None:
        """Assert that the port refuses connections as long as ``mark`` is not in the log."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            with socket.socket() as client:
                refused = client.connect_ex(("127.0.0.1", self.port)) == errno.ECONNREFUSED
            # A busy machine may have let it come far before it was stopped.
            assert refused or mark in self.log, self.log
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)
        until(lambda: not self.processes(), "the group is gone")


Start = Callable[..., Engine]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start engines on one simulated driver; all are gone afterwards."""
    if sys.platform == "win32":
        pytest.skip("the simulated engines need a Unix host")
    write_gpus(tmp_path / "sim", count=8)
    engines: list[Engine] = []

    def begin(kind: str, arguments: list[str] | None = None, **env: str) -> Engine:
        chosen = arguments or (SGLANG_EAGLE3 if kind == "sglang" else VLLM_EAGLE3)
        engine = Engine(tmp_path, kind, chosen, env)
        engines.append(engine)
        return engine

    yield begin
    for engine in engines:
        engine.end()
