"""How the simulated engines write their logs: stamped lines and tqdm's progress bars."""

import math
import os
import time
from collections.abc import Iterator, Sequence

from eaglemon.sim.settings import Settings

_BLOCKS = " ▏▎▍▌▋▊▉█"


class Console:
    """Writes whole lines straight to a file descriptor, so that processes do not mix them."""

    def __init__(self, settings: Settings, fd: int = 2) -> None:
        self.settings = settings
        self.fd = fd
        self.silent = "no-log" in settings.faults

    def write(self, text: str) -> None:
        """Write ``text`` as it stands."""
        if self.silent:
            return
        data = text.encode()
        while data:
            data = data[os.write(self.fd, data) :]

    def line(self, text: str) -> None:
        """Write one line without a stamp."""
        self.write(text + "\n")


class SglangConsole(Console):
    """SGLang's log: ``[2026-11-29 14:35:50 TP0] message``, all on stderr."""

    def __init__(self, settings: Settings, prefix: str = "") -> None:
        super().__init__(settings)
        self.prefix = prefix

    def log(self, message: str) -> None:
        """Write one stamped line."""
        self.line(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{self.prefix}] {message}")

    def http(self, message: str, level: str = "INFO") -> None:
        """Write a line of uvicorn's."""
        self.log(f"{level + ':':<10}{message}")


class VllmConsole(Console):
    """vLLM's log: ``(EngineCore pid=7) INFO 11-29 14:14:24 [core.py:133] message``, on stdout."""

    def __init__(self, settings: Settings, name: str) -> None:
        super().__init__(settings, fd=1)
        self.name = name
        self.bars = Console(settings, fd=2)

    def log(self, place: str, message: str, level: str = "INFO") -> None:
        """Write one stamped line; ``place`` is the engine's source file and line."""
        stamp = time.strftime("%m-%d %H:%M:%S")
        self.line(f"({self.name} pid={os.getpid()}) {level} {stamp} [{place}] {message}")

    def http(self, message: str) -> None:
        """Write a line of uvicorn's, which has no stamp."""
        self.line(f"INFO:     {message}")


def shard_bar(
    console: Console, title: str, total: int, seconds: float, *, end: str = "\n"
) -> Iterator[int]:
    """Draw the bar of a weight load over simulated ``seconds``; yields each finished shard."""
    began = time.monotonic()
    console.write(f"\r{title}:   0% Completed | 0/{total} [00:00<?, ?it/s]")
    for done in range(1, total + 1):
        console.settings.sleep(seconds / total)
        elapsed = max(time.monotonic() - began, 1e-4)
        left = elapsed / done * (total - done)
        percent = 100 * done // total
        console.write(
            f"\r{title}: {percent:3d}% Completed | {done}/{total} "
            f"[{_clock(elapsed)}<{_clock(left)}, {_rate(done / elapsed)}]"
        )
        yield done
    console.write(end)


def capture_bar(
    console: Console, titles: Sequence[str], seconds: float, *, plain_start: bool = True
) -> Iterator[int]:
    """Draw the bar of a graph capture, one title per shape; yields each captured shape."""
    total = len(titles)
    began = time.monotonic()
    if plain_start:
        console.write(f"\r  0%|          | 0/{total} [00:00<?, ?it/s]")
    drawn = 0.0
    for done in range(total + 1):
        elapsed = max(time.monotonic() - began, 1e-4)
        left = f"{_clock(elapsed / done * (total - done))}, {_rate(done / elapsed)}" if done else ""
        # tqdm draws ten times a second at most.
        if done in {0, total} or elapsed - drawn > 0.1:
            drawn = elapsed
            percent = 100 * done // total
            console.write(
                f"\r{titles[min(done, total - 1)]}: {percent:3d}%|{_blocks(done / total)}| "
                f"{done}/{total} [{_clock(elapsed)}<{left or '?, ?it/s'}]"
            )
        if done < total:
            console.settings.sleep(seconds / total)
            yield done + 1
    console.write("\n")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def _rate(per_second: float) -> str:
    return f"{per_second:5.2f}it/s" if per_second >= 1 else f"{1 / per_second:5.2f}s/it"


def _blocks(fraction: float) -> str:
    eighths = math.floor(fraction * 80)
    whole, part = divmod(eighths, 8)
    text = "█" * whole + (_BLOCKS[part] if part else "")
    return f"{text:<10}"
