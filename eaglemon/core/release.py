"""Is the GPU memory of a stopped server back? Pure arithmetic over one sample."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
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
    unknown: str = ""
    """Why nobody can tell whose the memory is that is still in use; ``held_bytes`` is ``None``."""


def release_of(
    sample: HostSample, *, before: Mapping[str, int | None], pids: AbstractSet[int]
) -> Release:
    """Compare ``sample`` with ``before`` (used bytes by GPU uuid, before the launch).

    ``pids`` are all processes the run ever had. Only the GPUs in ``before`` count: those the run
    was seen to use. A GPU that cannot be read is not back, and neither is one where more is used
    than is known of: unknown is not released. Nor is it known whose memory it is that the driver
    lists under a PID without a process: it may have been forked by the run as it was stopped.
    """
    used_by_uuid = {gpu.uuid: gpu.memory_used_bytes for gpu in sample.gpus}
    ours = tuple(
        process
        for process in sample.processes
        if process.gpu_uuid in before and process.pid in pids
    )
    held = back_count = 0
    unknown = ""
    for uuid, level in before.items():
        used = used_by_uuid.get(uuid)
        if used is None:
            return Release(back=False, held_bytes=None, holders=ours, gpus=len(before))
        others = [one for one in sample.processes if one.gpu_uuid == uuid and one not in ours]
        foreign = sum(one.memory_bytes or 0 for one in others if one.user is not None)
        left = max(0, used - max(level or 0, foreign))
        held += left
        holds = any(process.gpu_uuid == uuid for process in ours)
        if left > TOLERANCE_BYTES and not holds:
            unknown = unknown or _unknown(level, others)
        back_count += left <= TOLERANCE_BYTES and not holds
    back = not ours and held <= TOLERANCE_BYTES * max(1, len(before))
    return Release(
        back=back,
        held_bytes=None if unknown else held,
        holders=ours,
        gpus=len(before),
        gpus_back=len(before) if back else back_count,
        unknown=unknown,
        others=tuple(
            process
            for process in sample.processes
            if process.gpu_uuid in before and process not in ours
        ),
    )


def _unknown(level: int | None, others: Sequence[GpuProcess]) -> str:
    """Say why memory in use may be that of others; empty where all of theirs is known."""
    untold = next((one.pid for one in others if one.memory_bytes is None), None)
    if untold is not None:
        return f"how much PID {untold} holds, which is not of this run, is not told"
    holders = (one for one in others if (one.memory_bytes or 0) > TOLERANCE_BYTES)
    unseen = next((one.pid for one in holders if one.user is None), None)
    if unseen is not None:
        return f"whose PID {unseen} is, which is seen as no process, is not known"
    return "" if level is not None else "what was in use before the launch is not known"
