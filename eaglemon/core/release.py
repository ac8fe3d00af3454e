"""Is the GPU memory of a stopped server back? Pure arithmetic over one sample."""

from collections.abc import Mapping
from dataclasses import dataclass

from eaglemon.core.hosts import GpuProcess, HostSample

TOLERANCE_BYTES = 256 * 1024 * 1024
"""Driver contexts of other processes come and go; a server that holds on holds far more."""
GONE_UNPROVEN = "processes are gone; GPU memory is not known"
"""How a stop ends whose GPUs cannot be read."""


def gone_unseen(reason: str) -> str:
    """Return how a stop ends of which it was never known whether it held GPU memory."""
    return f"processes are gone; GPU memory cannot be seen: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """How far the memory of a run is back."""

    back: bool
    held_bytes: int | None
    """Above the level before the launch, what other processes took since left out."""
    holders: tuple[GpuProcess, ...] = ()
    """Processes of the run that still hold memory."""
    gpus: int = 0
    """GPUs of the run."""
    gpus_back: int = 0
    """Those whose memory is back."""
    others: tuple[GpuProcess, ...] = ()
    """Processes that are not of the run and hold memory of its GPUs."""


def release_of(sample: HostSample, *, before: Mapping[str, int], pids: frozenset[int]) -> Release:
    """Compare ``sample`` with ``before`` (used bytes by GPU uuid, before the launch).

    ``pids`` are all processes the run ever had. Only the GPUs in ``before`` count: those the run
    was seen to use. A GPU that cannot be read
    is not back: unknown is not released.
    """
    used_by_uuid = {gpu.uuid: gpu.memory_used_bytes for gpu in sample.gpus}
    ours = tuple(
        process
        for process in sample.processes
        if process.gpu_uuid in before and process.pid in pids
    )
    held = back_count = 0
    for uuid, level in before.items():
        used = used_by_uuid.get(uuid)
        if used is None:
            return Release(back=False, held_bytes=None, holders=ours, gpus=len(before))
        foreign = sum(
            process.memory_bytes or 0
            for process in sample.processes
            if process.gpu_uuid == uuid and process not in ours
        )
        left = max(0, used - max(level, foreign))
        held += left
        holds = any(process.gpu_uuid == uuid for process in ours)
        back_count += left <= TOLERANCE_BYTES and not holds
    back = not ours and held <= TOLERANCE_BYTES * max(1, len(before))
    return Release(
        back=back,
        held_bytes=held,
        holders=ours,
        gpus=len(before),
        gpus_back=len(before) if back else back_count,
        others=tuple(
            process
            for process in sample.processes
            if process.gpu_uuid in before and process not in ours
        ),
    )
