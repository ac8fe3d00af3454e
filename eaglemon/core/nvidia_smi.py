"""What ``nvidia-smi`` prints, as samples: its CSV queries, its failures, and single cells.

For hosts where NVML cannot be asked through Python. A cell that holds no number is not known; it
never counts as 0. ``nvidia_smi_table`` reads the table and ``nvidia_smi_report`` what ``-q`` says.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eaglemon.core.hosts import GpuProcess, GpuSample

MIB = 1 << 20
GPU_FIELDS = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "memory.total",
    "memory.used",
    "memory.reserved",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.active",
    "mig.mode.current",
    "driver_version",
)
"""Asked with ``--query-gpu``; drivers of the last eight years know them all."""
PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")
"""Asked with ``--query-compute-apps``."""

THROTTLE = {
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Bits of the clocks event reasons (nvml.h); bit 1, idle, holds nothing back."""

_NUMBER = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(?:MiB|MB|W|C|%|MHz)?")
_ABSENT = frozenset({"", "n/a", "not supported", "unknown error", "err!", "not found"})
_LOST = re.compile(r"Unable to determine the device handle for GPU\s*(\S+?):\s+(.+)", re.I)
_TEGRA = re.compile(r"nvgpu|tegra|orin|thor|xavier", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiReading:
    """One answer of ``nvidia-smi``."""

    gpus: tuple[GpuSample, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    processes_known: bool = False
    """An empty list means that there is no process."""
    driver_version: str | None = None
    driver_error: str | None = None
    """Why there are no readings, in the driver's words with the next step."""
    mig_modes: Mapping[str, bool] | None = None
    """By GPU uuid: whether MIG is on; instances are in the table only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The host's own memory, for GPUs that have none of theirs."""

    total_bytes: int
    available_bytes: int


def number(cell: str | None) -> float | None:
    """Return the number of a cell such as ``25.02 W``; ``None`` where there is none."""
    match = _NUMBER.fullmatch(cell or "")
    return float(match[1]) if match else None


def whole(cell: str | None) -> int | None:
    """Return a whole number of a cell."""
    value = number(cell)
    return None if value is None else int(value)


def mebibytes(cell: str | None) -> int | None:
    """Return the bytes of a cell in MiB."""
    value = number(cell)
    return None if value is None else int(value * MIB)


def text(cell: str | None) -> str | None:
    """Return a cell's text; ``None`` where it says that there is nothing."""
    value = (cell or "").strip()
    return None if value.strip("[]").lower() in _ABSENT else value


def is_tegra(name: str | None) -> bool:
    """Whether a GPU is one of those whose process list is always empty."""
    return bool(name and _TEGRA.search(name))


def throttle_reasons(cell: str | None) -> tuple[str, ...] | None:
    """Return the words for a hexadecimal set of reasons."""
    value = (cell or "").strip()
    if not re.fullmatch(r"0x[0-9a-fA-F]+", value):
        return None
    bits = int(value, 16)
    return tuple(words for bit, words in THROTTLE.items() if bits & bit)


def read_gpus(answer: str, fields: Sequence[str] = GPU_FIELDS) -> SmiReading:
    """Read a ``--query-gpu`` answer in CSV; a header line, if there is one, names the fields."""
    gpus: list[GpuSample] = []
    version = None
    modes: dict[str, bool] = {}
    names = tuple(fields)
    for line in answer.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if _is_header(cells):
            names = tuple(cell.partition(" [")[0] for cell in cells)
            continue
        if len(cells) < 2:
            continue
        row = dict(zip(names, cells, strict=False))
        gpu = _gpu_of(row, len(gpus))
        gpus.append(gpu)
        version = version or text(row.get("driver_version"))
        mode = row.get("mig.mode.current")
        if mode in {"Enabled", "Disabled"}:
            modes[gpu.uuid] = mode == "Enabled"
    if not gpus:
        return SmiReading(driver_error=failure(answer) or "nvidia-smi answered without a GPU")
    return SmiReading(gpus=in_pci_order(gpus), driver_version=version, mig_modes=modes)


def read_processes(answer: str, gpus: Sequence[GpuSample]) -> tuple[tuple[GpuProcess, ...], bool]:
    """Read a ``--query-compute-apps`` answer: (processes, whether an empty list means none)."""
    found = []
    for line in answer.splitlines():
        # The name may hold commas; the first two fields and the last one cannot.
        head, _, memory = line.rpartition(",")
        cells = [cell.strip() for cell in head.split(",", 2)]
        if len(cells) < 3 or not cells[1].isdigit():
            continue
        found.append(
            GpuProcess(
                gpu_uuid=cells[0],
                pid=int(cells[1]),
                command=text(cells[2]),
                memory_bytes=process_memory(memory),
            )
        )
    known = failure(answer) is None and not any(is_tegra(gpu.name) for gpu in gpus)
    return tuple(found), known


def process_memory(cell: str | None) -> int | None:
    """Return a process's memory: 0 is what a PID of another namespace shows, so it is unknown."""
    return mebibytes(cell) or None


def failure(answer: str) -> str | None:
    """Return what a failed ``nvidia-smi`` said, with the next step; ``None`` when it did not."""
    said = " ".join(answer.split())
    lost = _LOST.search(said)
    if lost:
        return advise(f"GPU {lost[1]}: {lost[2]}")
    for start in (
        "Failed to initialize NVML",
        "No devices were found",
        "NVIDIA-SMI has failed",
        "NVIDIA-SMI couldn't",
        "Field ",
    ):
        place = said.find(start)
        if place >= 0:
            return advise(said[place:])
    return None


def lost_bus_id(answer: str) -> str | None:
    """Return the PCI address of the GPU that made the whole answer fail."""
    lost = _LOST.search(" ".join(answer.split()))
    return lost[1] if lost else None


_ADVICE = (
    ("mismatch", "reboot the host, or reload the nvidia modules"),
    ("is lost", "reboot the host to recover it"),
    (
        "unknown error",
        "a container lost its device access (servers may go on): restart the container",
    ),
    ("permission", "let this user read /dev/nvidia* (often: the group video or render)"),
    ("no devices", "see lspci and dmesg: no GPU here, or it is given to a virtual machine"),
    ("driver not loaded", "load it: modprobe nvidia"),
    ("couldn't communicate", "see dmesg: the driver is not loaded"),
    ("no nvidia-smi", "install the NVIDIA driver, or use this host without GPU readings"),
    ("library not found", "install the NVIDIA driver, or use this host without GPU readings"),
    ("not a valid field", "the driver is old: the report is read instead"),
)


NOT_READ = "no reading while GPU"
"""How the error of a GPU begins that nothing is known against: nvidia-smi stops at another."""
_NO_DRIVER = ("no nvidia-smi", "library not found")


def advise(said: str) -> str:
    """Return the driver's words with what to do about them, where that is known."""
    lower = said.lower()
    plain = said.rstrip(" .")
    for part, step in _ADVICE:
        if part in lower and step not in said and not ("reboot" in lower and "reboot" in step):
            return f"{plain}; {step}"
    return plain


def is_no_driver(said: str) -> bool:
    """Tell whether the words mean that there is no driver at all, not one that fails."""
    lower = said.lower()
    return any(part in lower for part in _NO_DRIVER)


def carry_over(before: Sequence[GpuSample], answer: str) -> tuple[GpuSample, ...]:
    """Return the GPUs known from before as rows without readings, after a failed answer."""
    lost = lost_bus_id(answer)
    reason = failure(answer) or "nvidia-smi does not answer"
    rows = []
    for gpu in before:
        bare = GpuSample(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            bus_id=gpu.bus_id,
            memory_total_bytes=gpu.memory_total_bytes,
        )
        is_lost = lost is not None and _same_place(lost, gpu.bus_id)
        other = f"{NOT_READ} {lost} is lost" if lost else reason
        rows.append(replace(bare, error=reason if is_lost else other))
    return tuple(rows)


def with_host_memory(gpu: GpuSample, memory: HostMemory | None) -> GpuSample:
    """Return a GPU whose memory is the host's, where it has none of its own to tell."""
    unknown = gpu.memory_total_bytes is None and gpu.memory_used_bytes is None
    if memory is None or gpu.error is not None or not unknown:
        return gpu
    return replace(
        gpu,
        memory_total_bytes=memory.total_bytes,
        memory_used_bytes=memory.total_bytes - memory.available_bytes,
        memory_is_host=True,
    )


def read_meminfo(content: str) -> HostMemory | None:
    """Read ``/proc/meminfo``."""
    values = dict(re.findall(r"^(\w+):\s*(\d+) kB", content, re.M))
    if "MemTotal" not in values or "MemAvailable" not in values:
        return None
    return HostMemory(
        total_bytes=int(values["MemTotal"]) * 1024,
        available_bytes=int(values["MemAvailable"]) * 1024,
    )


def in_pci_order(gpus: Sequence[GpuSample]) -> tuple[GpuSample, ...]:
    """Return GPUs in PCI order where all addresses are known, numbered so."""
    if not all(gpu.bus_id for gpu in gpus):
        return tuple(gpus)
    ordered = sorted(gpus, key=lambda gpu: (gpu.bus_id or "").lower())
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(ordered))


def _is_header(cells: Sequence[str]) -> bool:
    return cells[0] in {"name", "index", "uuid", "gpu_uuid"} or cells[0].startswith("memory.")


def _gpu_of(row: Mapping[str, str], position: int) -> GpuSample:
    index = whole(row.get("index"))
    bus_id = text(row.get("pci.bus_id"))
    said = [cell.strip("[]") for cell in row.values() if "lost" in cell.lower()]
    name = text(row.get("name"))
    failed = bool(said) or (row.get("name") or "").strip("[]") in {"ERR!", "Unknown Error"}
    index = position if index is None else index
    gpu = GpuSample(
        index=index,
        uuid=text(row.get("uuid")) or bus_id or f"unknown-{index}",
        name=name,
        bus_id=bus_id,
        memory_total_bytes=mebibytes(row.get("memory.total")),
    )
    if failed:
        return replace(gpu, error=advise(said[0] if said else "Unknown Error (ERR!)"))
    return replace(
        gpu,
        memory_used_bytes=mebibytes(row.get("memory.used")),
        memory_reserved_bytes=mebibytes(row.get("memory.reserved")),
        utilisation_percent=whole(row.get("utilization.gpu")),
        temperature_c=whole(row.get("temperature.gpu")),
        power_w=number(row.get("power.draw")),
        power_limit_w=number(row.get("power.limit")),
        ecc_uncorrected=whole(row.get("ecc.errors.uncorrected.volatile.total")),
        throttle=throttle_reasons(row.get("clocks_throttle_reasons.active")),
    )


def _same_place(one: str, other: str | None) -> bool:
    """Compare PCI addresses, whose domain has four or eight digits."""
    return other is not None and one.lower().lstrip("0") == other.lower().lstrip("0")
