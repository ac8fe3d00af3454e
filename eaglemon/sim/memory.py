"""Simulated GPU memory: what a process holds, told to the simulated driver by a file."""

import json
import os
from pathlib import Path

from eaglemon.sim.process import is_alive, start_ticks

H200_TOTAL_BYTES = 150_754_820_096
H200_RESERVED_BYTES = 644_939_776
GIB = 1 << 30


class OutOfMemoryError(Exception):
    """The GPU cannot give that much; carries the free bytes."""

    def __init__(self, wanted_bytes: int, free_bytes: int) -> None:
        super().__init__(f"wanted {wanted_bytes} bytes, {free_bytes} free")
        self.wanted_bytes = wanted_bytes
        self.free_bytes = free_bytes


def write_gpus(folder: Path, *, count: int, first: int = 0) -> None:
    """Write ``gpus.json``: ``count`` H200; ``first`` tells apart the GPUs of several hosts."""
    facts = {
        "count": count,
        "first": first,
        "name": "NVIDIA H200",
        "total": H200_TOTAL_BYTES,
        "reserved": H200_RESERVED_BYTES,
        "driver": "580.159.04",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory").mkdir(exist_ok=True)
    (folder / "processes").mkdir(exist_ok=True)
    (folder / "gpus.json").write_text(json.dumps(facts), "utf-8")


def register(folder: Path | None) -> None:
    """Leave this process's pid and start ticks, so that the host's end can find it."""
    if folder is not None:
        path = folder / "processes" / str(os.getpid())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(start_ticks(os.getpid()) or ""), "utf-8")


class GpuMemory:
    """The memory that this process holds on one GPU, and how busy it keeps the group's GPUs."""

    def __init__(self, folder: Path | None, gpu: int, group: tuple[int, ...] = ()) -> None:
        self._folder = folder
        self._gpu = gpu
        self._group = group or (gpu,)
        self._ticks = start_ticks(os.getpid())
        self._util = 0
        self.held_bytes = 0

    @property
    def total_bytes(self) -> int:
        """All of the GPU."""
        return H200_TOTAL_BYTES

    def free_bytes(self) -> int:
        """Return what nobody holds now."""
        held = self.held_bytes
        own = str(os.getpid())
        folder = self._folder / "memory" if self._folder else None
        for path in sorted(folder.glob("*.json")) if folder else []:
            if path.stem == own:
                continue
            try:
                facts = json.loads(path.read_text("utf-8"))
            except FileNotFoundError:
                continue
            if is_alive(int(path.stem), facts["ticks"]):
                held += facts["gpus"].get(str(self._gpu), 0)
        return H200_TOTAL_BYTES - H200_RESERVED_BYTES - held

    def free_gb(self) -> float:
        """Return the free GiB, which SGLang's log calls GB."""
        return self.free_bytes() / GIB

    def grow(self, count: int) -> None:
        """Take ``count`` more bytes; raises ``OutOfMemoryError``."""
        free = self.free_bytes()
        if count > free:
            raise OutOfMemoryError(count, free)
        self.held_bytes += count
        self._write()

    def busy(self, percent: int) -> None:
        """Set the utilisation of the group's GPUs."""
        if percent != self._util:
            self._util = percent
            self._write()

    def _write(self) -> None:
        if self._folder is None:
            return
        facts = {
            "ticks": self._ticks,
            "gpus": {str(self._gpu): self.held_bytes},
            "util": {str(gpu): self._util for gpu in self._group},
        }
        path = self._folder / "memory" / f"{os.getpid()}.json"
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(facts), "utf-8")
        draft.replace(path)
