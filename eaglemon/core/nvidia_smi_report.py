"""The report of ``nvidia-smi -q``: read where a driver is too old for the CSV query."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eaglemon.core.hosts import GpuProcess, GpuSample
from eaglemon.core.nvidia_smi import (
    SmiReading,
    failure,
    in_pci_order,
    is_tegra,
    mebibytes,
    number,
    process_memory,
    text,
    whole,
)

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*")
_REASONS = {
    "SW Power Cap": "power cap",
    "HW Slowdown": "hardware slowdown",
    "HW Thermal Slowdown": "too hot (hardware)",
    "HW Power Brake Slowdown": "power brake",
    "SW Thermal Slowdown": "too hot (software)",
    "Sync Boost": "sync boost",
}


@dataclass(slots=True)
class _Part:
    """One GPU's lines: values by the path of their headings."""

    bus_id: str
    values: dict[str, str] = field(default_factory=dict)
    processes: list[dict[str, str]] = field(default_factory=list)


def read_report(answer: str) -> SmiReading:
    """Read a whole report."""
    parts: list[_Part] = []
    general: dict[str, str] = {}
    headings: list[tuple[int, str]] = []
    for line in answer.splitlines():
        start = _GPU.fullmatch(line)
        if start:
            parts.append(_Part(bus_id=start[1]))
            headings = []
            continue
        key, colon, value = (piece.strip() for piece in line.partition(" : "))
        if not key:
            continue
        depth = len(line) - len(line.lstrip())
        headings = [one for one in headings if one[0] < depth]
        path = "/".join([*(name for _, name in headings), key])
        if parts and key == "Process ID":
            parts[-1].processes.append({})
        if not colon:
            headings.append((depth, key))
        elif not parts:
            general[path] = value
        elif path.startswith("Processes/") and parts[-1].processes:
            parts[-1].processes[-1][key] = value
        else:
            parts[-1].values[path] = value
        if key == "Process ID":
            headings.append((depth, key))
    if not parts:
        return SmiReading(driver_error=failure(answer) or "nvidia-smi reported no GPU")
    gpus = [_gpu_of(part, index) for index, part in enumerate(parts)]
    modes = {
        gpu.uuid: part.values["MIG Mode/Current"] == "Enabled"
        for gpu, part in zip(gpus, parts, strict=True)
        if part.values.get("MIG Mode/Current") in {"Enabled", "Disabled"}
    }
    processes = [
        process
        for gpu, part in zip(gpus, parts, strict=True)
        for process in _processes_of(part, gpu)
    ]
    says = any(part.values.get("Processes") == "None" for part in parts)
    tegra = any(is_tegra(gpu.name) for gpu in gpus)
    return SmiReading(
        gpus=in_pci_order(gpus),
        processes=tuple(processes),
        processes_known=(bool(processes) or says) and not tegra,
        driver_version=text(general.get("Driver Version")),
        mig_modes=modes,
    )


def _gpu_of(part: _Part, index: int) -> GpuSample:
    values = part.values
    gpu = GpuSample(
        index=index,
        uuid=text(values.get("GPU UUID")) or part.bus_id,
        name=text(values.get("Product Name")),
        bus_id=part.bus_id,
    )
    return replace(
        gpu,
        memory_total_bytes=mebibytes(values.get("FB Memory Usage/Total")),
        memory_used_bytes=mebibytes(values.get("FB Memory Usage/Used")),
        memory_reserved_bytes=mebibytes(values.get("FB Memory Usage/Reserved")),
        utilisation_percent=whole(values.get("Utilization/GPU", values.get("Utilization/Gpu"))),
        temperature_c=whole(values.get("Temperature/GPU Current Temp")),
        power_w=_power(values, "Average Power Draw", "Power Draw", "Instantaneous Power Draw"),
        power_limit_w=_power(values, "Current Power Limit", "Enforced Power Limit", "Power Limit"),
        ecc_uncorrected=_ecc(values),
        throttle=_throttle(values),
    )


def _power(values: Mapping[str, str], *names: str) -> float | None:
    for group in ("GPU Power Readings", "Power Readings"):
        for name in names:
            found = number(values.get(f"{group}/{name}"))
            if found is not None:
                return found
    return None


def _ecc(values: Mapping[str, str]) -> int | None:
    cells = [
        whole(value)
        for key, value in values.items()
        if key.startswith("ECC Errors/Volatile/") and "Uncorrectable" in key
    ]
    known = [cell for cell in cells if cell is not None]
    return sum(known) if known else None


def _throttle(values: Mapping[str, str]) -> tuple[str, ...] | None:
    found = []
    seen = False
    for key, value in values.items():
        if not key.startswith(("Clocks Event Reasons/", "Clocks Throttle Reasons/")):
            continue
        seen = True
        words = _REASONS.get(key.rpartition("/")[2])
        if words and value == "Active":
            found.append(words)
    return tuple(found) if seen else None


def _processes_of(part: _Part, gpu: GpuSample) -> list[GpuProcess]:
    return [
        GpuProcess(
            gpu_uuid=gpu.uuid,
            pid=int(one["Process ID"]),
            command=text(one.get("Name")),
            memory_bytes=process_memory(one.get("Used GPU Memory")),
        )
        for one in part.processes
        if one.get("Process ID", "").isdigit()
    ]
