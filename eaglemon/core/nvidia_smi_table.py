"""The table that ``nvidia-smi`` prints: read by the rules of its columns, not by their places.

Widths and headers change from driver to driver. Needed for MIG instances, which no CSV query
tells.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from eaglemon.core.hosts import GpuProcess, GpuSample, MigInstance
from eaglemon.core.nvidia_smi import (
    SmiReading,
    advise,
    failure,
    is_tegra,
    mebibytes,
    number,
    process_memory,
    text,
    whole,
)

_FIRST = re.compile(r"(\d+)\s{2,}(.*?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM|ERR!)")
_SECOND = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+(.+?)\s*/\s*(.+)")
_BUS = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_PAIR = re.compile(r"(\d+)\s*MiB\s*/\s*(\d+)\s*MiB")
_MIG = re.compile(r"(\d+)\s+(\d+)\s+(\d+)\s+(\d+)")
_PROCESS = re.compile(
    r"(\d+)\s+(?:(N/A|\d+)\s+(N/A|\d+)\s+)?(\d+)\s+([CGM+]+)\s+(.+?)\s+(\d+MiB|N/A)"
)
_DRIVER = re.compile(r"Driver Version:\s*(\S+)")
_NONE = "No running processes found"


def read_table(answer: str) -> SmiReading:
    """Read the table; rows that are cut off or of another kind are left out."""
    gpus: list[GpuSample] = []
    modes: dict[str, bool] = {}
    mig: dict[int, list[MigInstance]] = {}
    processes: list[GpuProcess] = []
    section, says_none, listed = "gpus", False, False
    for line in answer.splitlines():
        if not line.lstrip().startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[0].startswith("MIG devices"):
            section = "mig"
        elif cells[0].startswith("Processes"):
            section = "processes"
        says_none = says_none or _NONE in cells[0]
        if section == "gpus":
            _take_gpu_row(cells, gpus, modes)
        elif section == "mig":
            _take_instance(cells, gpus, mig)
        else:
            process = _process_of(cells, gpus)
            listed = listed or process is not None
            processes += [process] if process else []
    if not gpus:
        return SmiReading(driver_error=failure(answer) or "nvidia-smi printed no GPU")
    driver = _DRIVER.search(answer)
    tegra = any(is_tegra(gpu.name) for gpu in gpus)
    with_mig = [
        replace(gpu, mig=tuple(mig.get(gpu.index, ()))) if modes.get(gpu.uuid) else gpu
        for gpu in gpus
    ]
    return SmiReading(
        gpus=tuple(with_mig),
        processes=tuple(processes),
        processes_known=(listed or says_none) and not tegra,
        driver_version=text(driver[1]) if driver else None,
        mig_modes=modes,
    )


def _take_gpu_row(cells: Sequence[str], gpus: list[GpuSample], modes: dict[str, bool]) -> None:
    """Take one line of a GPU's two or three."""
    first = _FIRST.fullmatch(cells[0])
    if first and len(cells) > 1:
        gpus.append(_gpu_of(first, cells))
        return
    if not gpus or len(cells) < 2:
        return
    gpu = gpus[-1]
    second = _SECOND.fullmatch(cells[0])
    if second:
        gpus[-1] = _with_readings(gpu, second, cells)
    elif not cells[0] and cells[-1] in {"Enabled", "Disabled"}:
        modes[gpu.uuid] = cells[-1] == "Enabled"


def _gpu_of(first: re.Match[str], cells: Sequence[str]) -> GpuSample:
    bus = _BUS.search(cells[1])
    index = int(first[1])
    bus_id = bus[0] if bus else None
    failed = first[2] == "ERR!"
    return GpuSample(
        index=index,
        # The table has no uuid: the address is as lasting.
        uuid=bus_id or f"unknown-{index}",
        name=text(first[2]),
        bus_id=bus_id,
        ecc_uncorrected=whole(cells[2]) if len(cells) > 2 else None,
        error=advise("Unknown Error (ERR!)") if failed else None,
    )


def _with_readings(gpu: GpuSample, second: re.Match[str], cells: Sequence[str]) -> GpuSample:
    pair = _PAIR.search(cells[1])
    total = mebibytes(pair[2]) if pair else None
    if gpu.error is not None:
        # The table still prints 0MiB for a GPU that has failed: that is no free memory.
        return replace(gpu, memory_total_bytes=total)
    used = re.match(r"(\d+)%", cells[2]) if len(cells) > 2 else None
    return replace(
        gpu,
        memory_used_bytes=mebibytes(pair[1]) if pair else None,
        memory_total_bytes=total,
        utilisation_percent=int(used[1]) if used else None,
        temperature_c=whole(second[2]),
        power_w=number(second[4]),
        power_limit_w=number(second[5]),
    )


def _take_instance(
    cells: Sequence[str], gpus: Sequence[GpuSample], mig: dict[int, list[MigInstance]]
) -> None:
    match = _MIG.fullmatch(cells[0])
    pair = _PAIR.search(cells[1]) if len(cells) > 1 else None
    if match is None:
        return
    index = int(match[1])
    owner = next((gpu.uuid for gpu in gpus if gpu.index == index), f"unknown-{index}")
    mig.setdefault(index, []).append(
        MigInstance(
            uuid=f"{owner}/{match[2]}/{match[3]}",
            gpu_instance=int(match[2]),
            compute_instance=int(match[3]),
            memory_used_bytes=mebibytes(pair[1]) if pair else None,
            memory_total_bytes=mebibytes(pair[2]) if pair else None,
        )
    )


def _process_of(cells: Sequence[str], gpus: Sequence[GpuSample]) -> GpuProcess | None:
    match = _PROCESS.fullmatch(cells[0])
    if match is None:
        return None
    index = int(match[1])
    owner = next((gpu.uuid for gpu in gpus if gpu.index == index), f"unknown-{index}")
    inside = match[2] is not None and match[2] != "N/A"
    return GpuProcess(
        gpu_uuid=owner,
        pid=int(match[4]),
        command=text(match[6]),
        memory_bytes=process_memory(match[7]),
        mig_uuid=f"{owner}/{match[2]}/{match[3]}" if inside else None,
    )
