# ruff: noqa: N801, N802, N816, N818
"""A driver library for the simulated host: stands in for ``pynvml``, with the same names.

Stand-alone on purpose (standard library only, Python 3.8): the agent executes this source in
place of pynvml's. It reads one folder, ``EAGLEMON_SIM_DIR``:

* ``gpus.json``: ``{"count": 8, "name": ..., "total": bytes, "reserved": bytes, "driver": ...}``
* ``memory/<pid>.json``: ``{"ticks": start ticks, "gpus": {"0": bytes}, "util": {"0": percent}}``,
  written by the simulated engines. What a dead process held lingers for ``LINGER_S`` and is gone;
  ``memory/<pid>.dead`` was written when the first of all drivers saw its death.
* switches for tests: ``hang`` (every call blocks while it exists), ``lost`` (indexes of GPUs that
  have fallen off the bus), ``mismatch`` (driver and library versions differ).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from pathlib import Path

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
NVML_ERROR_UNKNOWN = 999

NVML_TEMPERATURE_GPU = 0
NVML_VALUE_NOT_AVAILABLE_ulonglong = 0xFFFFFFFFFFFFFFFF
nvmlMemory_v2 = 0x02000028

LINGER_S = 0.2
"""How long the memory of a dead process is still reported (seen on an H200: 0.17 s)."""

_IDLE_W, _CONTEXT_W, _BUSY_W, _LIMIT_MW = 77.5, 118.4, 610.0, 700000
_IDLE_C, _BUSY_C, _SETTLE_S = 31.0, 68.0, 8.0

_MESSAGES = {
    NVML_ERROR_UNINITIALIZED: "Uninitialized",
    NVML_ERROR_INVALID_ARGUMENT: "Invalid Argument",
    NVML_ERROR_NOT_SUPPORTED: "Not Supported",
    NVML_ERROR_NO_PERMISSION: "Insufficient Permissions",
    NVML_ERROR_NOT_FOUND: "Not Found",
    NVML_ERROR_DRIVER_NOT_LOADED: "Driver Not Loaded",
    NVML_ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    NVML_ERROR_FUNCTION_NOT_FOUND: "Function Not Found",
    NVML_ERROR_GPU_IS_LOST: "GPU is lost",
    NVML_ERROR_LIB_RM_VERSION_MISMATCH: "RM has detected an NVML/RM version mismatch.",
    NVML_ERROR_UNKNOWN: "Unknown Error",
}


class NVMLError(Exception):
    """An NVML call failed; ``value`` is the code."""

    def __new__(cls, value: int) -> NVMLError:
        """Return an instance of the code's own class, as pynvml does."""
        if cls is NVMLError:
            cls = _BY_CODE.get(value, NVMLError)  # noqa: PLW0642
        return super().__new__(cls, value)

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        """Return the driver's words."""
        return _MESSAGES.get(self.value, f"NVML Error with code {self.value}")


class NVMLError_Uninitialized(NVMLError):
    """``nvmlInit`` was not called."""


class NVMLError_InvalidArgument(NVMLError):
    """No such GPU, or a wrong argument."""


class NVMLError_NotSupported(NVMLError):
    """The GPU cannot tell this."""


class NVMLError_GpuIsLost(NVMLError):
    """The GPU has fallen off the bus."""


class NVMLError_LibRmVersionMismatch(NVMLError):
    """The library does not fit the loaded driver."""


class NVMLError_LibraryNotFound(NVMLError):
    """There is no driver library."""


_BY_CODE = {
    NVML_ERROR_UNINITIALIZED: NVMLError_Uninitialized,
    NVML_ERROR_INVALID_ARGUMENT: NVMLError_InvalidArgument,
    NVML_ERROR_NOT_SUPPORTED: NVMLError_NotSupported,
    NVML_ERROR_GPU_IS_LOST: NVMLError_GpuIsLost,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH: NVMLError_LibRmVersionMismatch,
    NVML_ERROR_LIBRARY_NOT_FOUND: NVMLError_LibraryNotFound,
}


class _Values:
    """A plain record, like pynvml's structures."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


class _Driver:
    """What this process knows of the simulated driver."""

    def __init__(self) -> None:
        self.users = 0
        self.heat: dict[int, tuple[float, float]] = {}

    @property
    def folder(self) -> Path:
        folder = os.environ.get("EAGLEMON_SIM_DIR", "")
        if not folder or not Path(folder).is_dir():
            raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND)
        return Path(folder)

    def wait_hang(self) -> None:
        while (self.folder / "hang").exists():
            time.sleep(0.02)

    def ready(self) -> dict[str, object]:
        """Return the facts, after whatever the switches of this folder ask for."""
        self.wait_hang()
        if self.users <= 0:
            raise NVMLError(NVML_ERROR_UNINITIALIZED)
        return dict(json.loads((self.folder / "gpus.json").read_text("utf-8")))

    def device(self, handle: int) -> dict[str, object]:
        facts = self.ready()
        path = self.folder / "lost"
        if path.exists() and str(handle) in path.read_text("utf-8").split():
            raise NVMLError(NVML_ERROR_GPU_IS_LOST)
        return facts

    def holders(self) -> dict[int, dict[str, object]]:
        """Return the memory files of living and just deceased processes, by pid."""
        found: dict[int, dict[str, object]] = {}
        for path in sorted((self.folder / "memory").glob("*.json")):
            try:
                held = json.loads(path.read_text("utf-8"))
            except FileNotFoundError:
                continue
            pid = int(path.stem)
            mark = path.with_suffix(".dead")
            if _alive(pid, held.get("ticks")):
                mark.unlink(missing_ok=True)
            elif _age_s(mark) > LINGER_S:
                path.unlink(missing_ok=True)
                mark.unlink(missing_ok=True)
                continue
            found[pid] = held
        return found

    def utilisation(self, handle: int) -> int:
        percents = [
            _number(held.get("util"), handle)
            for pid, held in self.holders().items()
            if _alive(pid, held.get("ticks"))
        ]
        return min(100, max(percents, default=0))

    def warmth(self, handle: int) -> float:
        """Return how warm the GPU is, 0 to 1: follows the load with some delay."""
        now, target = time.monotonic(), self.utilisation(handle) / 100.0
        before, value = self.heat.get(handle, (now - 10 * _SETTLE_S, 0.0))
        value = target + (value - target) * math.exp((before - now) / _SETTLE_S)
        self.heat[handle] = (now, value)
        return value


_driver = _Driver()


def _alive(pid: int, ticks: object) -> bool:
    """Tell whether the process lives and is the file's writer (a zombie holds nothing)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
    except OSError:
        return _signals(pid) if not Path("/proc/self").exists() else False
    return fields[0] not in (b"Z", b"X") and (ticks is None or int(fields[19]) == ticks)


def _age_s(mark: Path) -> float:
    """Return how old a mark is, which is made if there is none."""
    try:
        with mark.open("x", encoding="utf-8") as file:
            file.write(repr(time.monotonic()))  # the same clock in all processes of a host
    except FileExistsError:
        # It may be gone, or not yet written.
        with contextlib.suppress(FileNotFoundError, ValueError):
            return time.monotonic() - float(mark.read_text("utf-8"))
    except FileNotFoundError:
        pass  # the host is being taken down
    return 0.0


def _signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _number(table: object, handle: int) -> int:
    return int(table.get(str(handle), 0)) if isinstance(table, dict) else 0


def _integer(facts: dict[str, object], key: str) -> int:
    value = facts[key]
    return value if isinstance(value, int) else 0


def nvmlInit() -> None:
    """Load the driver library."""
    _driver.wait_hang()
    if (_driver.folder / "mismatch").exists():
        raise NVMLError(NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    _driver.users += 1


def nvmlShutdown() -> None:
    """Let the driver library go."""
    _driver.ready()
    _driver.users -= 1


def nvmlSystemGetDriverVersion() -> str:
    """Return the driver's version."""
    return str(_driver.ready()["driver"])


def nvmlDeviceGetCount() -> int:
    """Return how many GPUs there are."""
    return _integer(_driver.ready(), "count")


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    """Return the handle of a GPU; here its index."""
    if not 0 <= index < _integer(_driver.ready(), "count"):
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
    return index


def nvmlDeviceGetName(handle: int) -> str:
    """Return the model."""
    return str(_driver.device(handle)["name"])


def nvmlDeviceGetUUID(handle: int) -> str:
    """Return the GPU's lasting name."""
    number = _integer(_driver.device(handle), "first") + handle
    return f"GPU-51a3e000-0000-4000-8000-{number:012d}"


def nvmlDeviceGetPciInfo(handle: int) -> _Values:
    """Return the place on the bus."""
    _driver.device(handle)
    bus = 0x1B + 0x10 * handle
    text = f"00000000:{bus:02X}:00.0"
    return _Values(busId=text, busIdLegacy=text[4:], bus=bus, device=0, domain=0)


def nvmlDeviceGetMemoryInfo(handle: int, version: int | None = None) -> _Values:
    """Return total, free and used bytes; version 2 keeps the reserved part out of ``used``."""
    facts = _driver.device(handle)
    total, reserved = _integer(facts, "total"), _integer(facts, "reserved")
    used = sum(_number(held.get("gpus"), handle) for held in _driver.holders().values())
    free = total - reserved - used
    if version is None:
        return _Values(total=total, used=used + reserved, free=free)
    return _Values(version=version, total=total, used=used, free=free, reserved=reserved)


def nvmlDeviceGetUtilizationRates(handle: int) -> _Values:
    """Return how busy the GPU and its memory are, in percent."""
    _driver.device(handle)
    percent = _driver.utilisation(handle)
    return _Values(gpu=percent, memory=percent * 3 // 5)


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    """Return degrees Celsius."""
    _driver.device(handle)
    if sensor != NVML_TEMPERATURE_GPU:
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
    return round(_IDLE_C + (_BUSY_C - _IDLE_C) * _driver.warmth(handle)) + handle % 3


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    """Return milliwatts."""
    _driver.device(handle)
    held = any(_number(held.get("gpus"), handle) for held in _driver.holders().values())
    floor = _CONTEXT_W if held else _IDLE_W
    watts = floor + (_BUSY_W - floor) * _driver.utilisation(handle) / 100.0
    return int(watts * 1000) + handle * 211


def nvmlDeviceGetEnforcedPowerLimit(handle: int) -> int:
    """Return milliwatts."""
    _driver.device(handle)
    return _LIMIT_MW


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[_Values]:
    """Return who holds memory of the GPU."""
    _driver.device(handle)
    return [
        _Values(pid=pid, usedGpuMemory=_number(held.get("gpus"), handle))
        for pid, held in sorted(_driver.holders().items())
        if _number(held.get("gpus"), handle)
    ]


def nvmlDeviceGetGraphicsRunningProcesses(handle: int) -> list[_Values]:
    """Return nothing: no simulated process draws."""
    _driver.device(handle)
    return []
