"""What keeps a process, and with it GPU memory, and the command that would help."""

from collections.abc import Iterable

from eaglemon.core.hosts import GpuProcess
from eaglemon.core.runs import RunProcess
from eaglemon.core.units import memory

_IN_KERNEL = "waits inside the kernel or the driver (state D): only that can let it go"


def process_holds(process: RunProcess, *, user: str | None = None) -> str:
    """Say why a process that got KILL is still there, and what would help.

    ``user`` is who eaglemon is on the host.
    """
    who = f"PID {process.pid} ({process.command[:40]})"
    if process.container is not None:
        who += f" in container {process.container}"
    if process.state == "D":
        return f"{who} {_IN_KERNEL}; see dmesg, and nvidia-smi --gpu-reset once it is gone"
    if process.state == "Z":
        parent = process.parent
        above = f"its parent, PID {parent}," if parent else "its parent"
        helps = f"kill {parent}" if parent and parent > 1 else "end its parent"
        return f"{who} is dead, and {above} does not take note (zombie); {helps}"
    if process.container is not None:
        return f"{who} survived KILL; docker kill {process.container}"
    if process.user is not None and user is not None and process.user != user:
        return f"{who} is of {process.user} and was not ended; sudo kill -9 {process.pid}"
    return f"{who} survived KILL: it may be another user's; sudo kill -9 {process.pid}"


def memory_holders(
    holders: Iterable[GpuProcess], *, user: str, ours: frozenset[int]
) -> tuple[str, ...]:
    """Name the processes that hold memory of a stopped run's GPUs, largest first.

    ``user`` is who eaglemon is on the host, ``ours`` the processes the run ever had.
    """
    lines = []
    ordered = sorted(holders, key=lambda one: one.memory_bytes or 0, reverse=True)
    for holder in ordered:
        held = f"{memory(holder.memory_bytes)} held by PID {holder.pid}"
        if holder.container is not None:
            lines.append(f"{held} in container {holder.container}; docker kill {holder.container}")
        elif holder.user is not None and holder.user != user:
            lines.append(f"{held} of {holder.user}; sudo kill {holder.pid}")
        elif holder.pid in ours:
            lines.append(f"{held}, of this run; kill -9 {holder.pid}")
        elif holder.user is None:
            lines.append(f"{held}, gone or hidden; sudo fuser -v /dev/nvidia*")
        else:
            lines.append(f"{held}; kill {holder.pid}")
    return tuple(lines)
