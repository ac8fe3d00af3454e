"""Runs a program in a terminal of 50 x 200 and measures it and all that it starts (Linux).

Times are seconds since its start, CPU counts the whole tree of processes, bytes are those that
arrive at the terminal. Questions that terminals answer are answered as xterm does.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROWS, COLUMNS = 50, 200
PICTURE_CHARACTERS = 200
"""A picture is this much text besides control sequences, without blanks."""
CHANGE_BYTES = 20
"""Less is a bell, a cursor or a mode."""
_CONTROL = re.compile(
    rb"\x1b\[[0-9;?<>=]*\$?[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]"
)
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


class Terminal:
    """One run of a program; ``with Terminal(...)`` ends it and all that it started."""

    def __init__(self, argv: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        self.started_at = time.monotonic()
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            like = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
            with contextlib.suppress(OSError):
                words = [str(word) for word in argv]
                os.execvpe(words[0], words, {**environment, **like})  # noqa: S606 -- no shell here
            os._exit(127)
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, size)
        self.bytes = 0
        self.seen = b""
        """All that came, while somebody waits for something in it."""
        self.ended = False
        self._stopped: list[int] = []

    def __enter__(self) -> Self:
        """Return the run."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all."""
        for pid in [*self.tree(), *self._stopped]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(self._file)
        if not self.ended:
            os.waitpid(self.pid, 0)

    def first(self, marker: str | None, *, limit_s: float = 20.0) -> float | None:
        """Wait for the first picture, or for ``marker`` in one, and return when it was there."""
        while (now := time.monotonic() - self.started_at) < limit_s and not self.ended:
            text = _CONTROL.sub(b"", self.seen)
            if marker is None:
                if len(text.replace(b" ", b"")) >= PICTURE_CHARACTERS:
                    return now
            elif marker.encode() in text:
                return now
            self._read(0.005, keep=True)
        return None

    def run_for(self, seconds: float) -> None:
        """Let it run and take what it writes."""
        self.seen = b""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.ended:
            self._read(0.02)

    def key(self, key: str, *, limit_s: float = 3.0) -> float | None:
        """Press a key and return the seconds until something changed on the screen."""
        begin = time.monotonic()
        os.write(self._file, key.encode())
        while (took := time.monotonic() - begin) < limit_s and not self.ended:
            if self._read(0.002) > CHANGE_BYTES:
                return took
        return None

    def leave(self, key: str = "q", *, limit_s: float = 30.0) -> float | None:
        """Press ``key`` and return the seconds until the program has ended."""
        if self.ended:
            raise RuntimeError("the program has ended before its time")
        begin = time.monotonic()
        os.write(self._file, key.encode())
        while time.monotonic() - begin < limit_s:
            self._read(0.005)
            if self.ended:
                return time.monotonic() - begin
        return None

    def hang(self, pids: Sequence[int]) -> None:
        """Stop processes (SIGSTOP) that it needs; they end with it."""
        self._stopped += pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    def tree(self) -> list[int]:
        """Return the program's process and all below it."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
        found = [] if self.ended else [self.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def cpu_s(self) -> float:
        """Return the CPU seconds of the tree, of ended children too."""
        total = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                total += sum(int(word) for word in _stat(pid)[11:15])
        return total / _TICKS

    def resident_mib(self) -> float:
        """Return the resident memory of the tree; shared pages count in each process."""
        total = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return total * _PAGE_MIB

    def _read(self, wait_s: float, *, keep: bool = False) -> int:
        ready, _, _ = select.select([self._file], [], [], wait_s)
        data = b""
        if ready:
            with contextlib.suppress(OSError):
                data = os.read(self._file, 65536)
        if not data and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.ended = True
        if b"\x1b[6n" in data:
            os.write(self._file, b"\x1b[1;1R")
        if b"\x1b[c" in data:
            os.write(self._file, b"\x1b[?62;c")
        self.bytes += len(data)
        if keep:
            self.seen += data
        return len(_CONTROL_ONLY.sub(b"", data)) if data else 0


_CONTROL_ONLY = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[\?[\d;]*[hl]")
"""What changes nothing on the screen."""


def compiled(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return ``environment`` for programs that are compiled once, as installed ones are."""
    found = {
        name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**found, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def _stat(pid: int) -> list[str]:
    """Return the words of a process's ``stat`` after its name."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
