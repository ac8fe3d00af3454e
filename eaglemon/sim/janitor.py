"""Ends everything of a simulated host: ``python -m eaglemon.sim.janitor FOLDER``.

It waits for the end of its input, which comes when the host's own process closes it or dies in
whatever way, then kills all processes of the host, however detached, and removes its folder.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import eaglemon
from eaglemon.sim.process import is_alive, start_ticks

_LIMIT_S = 10.0


def janitor_environment() -> dict[str, str]:
    """Return an environment in which the janitor finds this package."""
    source = Path(eaglemon.__file__).parent.parent
    return {**os.environ, "PYTHONPATH": str(source)}


def clean(folder: Path) -> None:
    """SIGKILL every process of the host until none is left, and remove the folder."""
    deadline = time.monotonic() + _LIMIT_S
    while (living := processes_of(folder)) and time.monotonic() < deadline:
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: Path) -> list[int]:
    """Return the living processes of the host: engines by their marks, others by environment."""
    living: set[int] = set()
    for mark in (folder / "sim" / "processes").glob("*"):
        ticks = mark.read_text("utf-8")
        if is_alive(int(mark.name), int(ticks) if ticks else None):
            living.add(int(mark.name))
    needle = f"EAGLEMON_SIM_DIR={folder / 'sim'}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        pid = int(entry.name)
        if needle in environment.split(b"\0") and is_alive(pid, start_ticks(pid)):
            living.add(pid)
    living.discard(os.getpid())
    return sorted(living)


def main() -> int:
    """Wait for the end of the input, then clean."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while sys.stdin.buffer.read(4096):
        continue
    clean(Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
