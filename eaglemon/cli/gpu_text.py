"""GPUs and their processes as text, for ``gpus`` and ``status``."""

from collections.abc import Mapping, Sequence

from eaglemon.core.gpu_history import GpuTrace, sparkline
from eaglemon.core.hosts import GpuProcess, GpuSample, HostSample, MigInstance
from eaglemon.core.units import UNKNOWN, duration, gib_pair, memory, plural
from eaglemon.core.views import HostView, ServerView

COMMAND_WIDTH = 60
PAST_WIDTH = 24
GPU_RIGHT = frozenset({2, 3, 4, 5})
PROCESS_RIGHT = frozenset({1, 3})
"""Columns that are aligned to the right."""
HEADER = ("  GPU", "NAME", "MEMORY GiB", "UTIL", "TEMP", "POWER W", "NOTES")


def gpu_rows(host: HostView, *, past: bool = False) -> list[tuple[str, ...]]:
    """Return a row for each GPU and MIG instance, the header first."""
    sample = host.sample
    if sample is None or not sample.gpus:
        return []
    header = (*HEADER, "MEMORY, LAST 2 m") if past else HEADER
    rows: list[tuple[str, ...]] = [header]
    for gpu in sample.gpus:
        trace = host.history.get(gpu.uuid)
        row = _gpu_row(gpu, trace, sample.at)
        rows.append((*row, _past(gpu, trace)) if past else row)
        rows += [
            (*_instance_row(gpu, one), "") if past else _instance_row(gpu, one)
            for one in gpu.mig or ()
        ]
    return rows


def process_rows(sample: HostSample, servers: Sequence[ServerView] = ()) -> list[tuple[str, ...]]:
    """Return a row for each process on the GPUs, the header first."""
    if not sample.processes:
        return []
    indexes = {gpu.uuid: gpu.index for gpu in sample.gpus}
    # A server that was started by anyone is known by the processes that were found for it.
    names = {pid: server.name for server in servers for pid in server.pids}
    rows: list[tuple[str, ...]] = [
        ("  GPU", "PID", "USER", "MEMORY", "CONTAINER", "BELONGS TO", "COMMAND")
    ]
    rows += [_process_row(one, indexes, names) for one in sample.processes]
    return rows


def notes_of(gpu: GpuSample, trace: GpuTrace | None, now: float) -> str:
    """Say what is odd about a GPU; empty where nothing is."""
    if gpu.error is not None:
        return f"{gpu.error}{_last_values(trace, now)}"
    notes = []
    if gpu.memory_is_host:
        notes.append("memory is the host's")
    notes += gpu.throttle or ()
    if gpu.ecc_uncorrected:
        notes.append(plural(gpu.ecc_uncorrected, "uncorrected ECC error"))
    if gpu.xid is not None:
        notes.append(f"XID {gpu.xid}")
    return ", ".join(notes)


def _last_values(trace: GpuTrace | None, now: float) -> str:
    if trace is None or trace.last is None or trace.last_at is None:
        return ""
    last = trace.last
    pair = gib_pair(last.memory_used_bytes, last.memory_total_bytes)
    return f" (last: {pair} GiB, {duration(max(now - trace.last_at, 0.0))} ago)"


def _gpu_row(gpu: GpuSample, trace: GpuTrace | None, now: float) -> tuple[str, ...]:
    used = gpu.utilisation_percent
    draw = UNKNOWN if gpu.power_w is None else f"{gpu.power_w:.0f}"
    cap = UNKNOWN if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f}"
    return (
        f"  {gpu.index}",
        gpu.name or UNKNOWN,
        gib_pair(gpu.memory_used_bytes, gpu.memory_total_bytes),
        UNKNOWN if used is None else f"{used} %",
        UNKNOWN if gpu.temperature_c is None else f"{gpu.temperature_c} C",
        UNKNOWN if draw == cap == UNKNOWN else f"{draw}/{cap}",
        notes_of(gpu, trace, now),
    )


def _instance_row(gpu: GpuSample, part: MigInstance) -> tuple[str, ...]:
    numbers = ":".join(
        UNKNOWN if one is None else str(one) for one in (part.gpu_instance, part.compute_instance)
    )
    return (
        f"  {gpu.index}/{numbers}",
        part.name or "MIG",
        gib_pair(part.memory_used_bytes, part.memory_total_bytes),
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        part.uuid,
    )


def _past(gpu: GpuSample, trace: GpuTrace | None) -> str:
    values = trace.memory_used_bytes if trace is not None else ()
    return sparkline(values, gpu.memory_total_bytes, PAST_WIDTH).rstrip()


def _process_row(
    process: GpuProcess, indexes: Mapping[str, int], names: Mapping[int, str]
) -> tuple[str, ...]:
    command = process.command or UNKNOWN
    if len(command) > COMMAND_WIDTH:
        command = f"{command[: COMMAND_WIDTH - 3]}..."
    container = process.container or UNKNOWN
    if process.container and process.container_pid is not None:
        container = f"{container} ({process.container_pid})"
    return (
        f"  {indexes.get(process.gpu_uuid, UNKNOWN)}",
        str(process.pid),
        process.user or UNKNOWN,
        memory(process.memory_bytes),
        container,
        process.run_id or names.get(process.pid) or UNKNOWN,
        command,
    )
