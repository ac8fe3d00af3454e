"""The stand-in for pynvml, without any engine."""

import json
import os
import runpy
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eaglemon.sim import nvml as module
from eaglemon.sim.memory import H200_RESERVED_BYTES, H200_TOTAL_BYTES, GpuMemory, write_gpus
from eaglemon.sim.process import start_ticks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_gpus(tmp_path, count=8)
    monkeypatch.setenv("EAGLEMON_SIM_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def nvml(folder: Path) -> Any:
    """A fresh copy, as the agent makes one by executing the source."""
    names = runpy.run_path(module.__file__)
    driver = SimpleNamespace(**names)
    driver.nvmlInit()
    return driver


def write_memory(folder: Path, pid: int, held: dict[str, int], ticks: int | None = None) -> None:
    facts = {"ticks": ticks if ticks is not None else start_ticks(pid), "gpus": held, "util": {}}
    (folder / "memory" / f"{pid}.json").write_text(json.dumps(facts), "utf-8")


def test_an_idle_host(nvml: Any) -> None:
    assert nvml.nvmlDeviceGetCount() == 8
    assert nvml.nvmlSystemGetDriverVersion() == "580.159.04"
    handle = nvml.nvmlDeviceGetHandleByIndex(3)
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA H200"
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    assert (memory.total, memory.used, memory.reserved) == (150754820096, 0, 644939776)
    assert memory.total == memory.used + memory.free + memory.reserved
    assert nvml.nvmlDeviceGetMemoryInfo(handle).used == H200_RESERVED_BYTES
    assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0
    assert nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU) < 40
    assert 77_000 < nvml.nvmlDeviceGetPowerUsage(handle) < 80_000
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(handle) == 700_000
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
    names = {nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(8)}
    buses = [nvml.nvmlDeviceGetPciInfo(i).busId for i in range(8)]
    assert len(names) == 8
    assert buses == sorted(buses)
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError):
        nvml.nvmlDeviceGetCount()


def test_who_holds_memory_and_keeps_the_gpu_busy(nvml: Any, folder: Path) -> None:
    memory = GpuMemory(folder, 2, (2, 3))
    memory.grow(31 << 30)
    memory.busy(90)
    assert nvml.nvmlDeviceGetMemoryInfo(2, version=nvml.nvmlMemory_v2).used == 31 << 30
    [process] = nvml.nvmlDeviceGetComputeRunningProcesses(2)
    assert (process.pid, process.usedGpuMemory) == (os.getpid(), 31 << 30)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(3) == []
    assert [nvml.nvmlDeviceGetUtilizationRates(i).gpu for i in (1, 2, 3)] == [0, 90, 90]
    assert nvml.nvmlDeviceGetPowerUsage(2) > 500_000
    assert memory.free_bytes() == H200_TOTAL_BYTES - H200_RESERVED_BYTES - (31 << 30)


def test_memory_of_the_dead_lingers_and_goes(nvml: Any, folder: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    write_memory(folder, child.pid, {"0": 5000})
    assert nvml.nvmlDeviceGetMemoryInfo(0, version=nvml.nvmlMemory_v2).used == 5000
    child.communicate(b"\n", timeout=60)
    began = time.monotonic()
    assert nvml.nvmlDeviceGetMemoryInfo(0, version=nvml.nvmlMemory_v2).used == 5000
    while nvml.nvmlDeviceGetMemoryInfo(0, version=nvml.nvmlMemory_v2).used:
        assert time.monotonic() - began < 60
        time.sleep(0.01)
    assert time.monotonic() - began >= nvml.LINGER_S
    assert nvml.nvmlDeviceGetComputeRunningProcesses(0) == []
    assert not list((folder / "memory").iterdir())


def test_a_death_is_the_same_for_all_drivers(nvml: Any, folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        write_memory(folder, child.pid, {"0": 5000})
    assert nvml.nvmlDeviceGetMemoryInfo(0, version=nvml.nvmlMemory_v2).used == 5000
    mark = folder / "memory" / f"{child.pid}.dead"
    mark.write_text(repr(time.monotonic() - 60.0))
    # As in a command that starts later, and ends before it could have seen it linger.
    other = SimpleNamespace(**runpy.run_path(module.__file__))
    other.nvmlInit()
    assert other.nvmlDeviceGetMemoryInfo(0, version=nvml.nvmlMemory_v2).used == 0
    assert not list((folder / "memory").iterdir())


def test_a_reused_pid_does_not_inherit(nvml: Any, folder: Path) -> None:
    write_memory(folder, os.getpid(), {"0": 5000}, ticks=1)
    nvml.nvmlDeviceGetMemoryInfo(0)
    deadline = time.monotonic() + 60
    while nvml.nvmlDeviceGetMemoryInfo(0, version=nvml.nvmlMemory_v2).used:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_switches(nvml: Any, folder: Path) -> None:
    (folder / "lost").write_text("1 5", "utf-8")
    with pytest.raises(nvml.NVMLError_GpuIsLost, match="GPU is lost") as lost:
        nvml.nvmlDeviceGetMemoryInfo(5)
    assert lost.value.value == nvml.NVML_ERROR_GPU_IS_LOST
    assert nvml.nvmlDeviceGetMemoryInfo(0).used == H200_RESERVED_BYTES
    (folder / "mismatch").touch()
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch, match="version mismatch"):
        nvml.nvmlInit()
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(8)


def test_a_hung_driver_blocks_until_it_is_let_go(nvml: Any, folder: Path) -> None:
    (folder / "hang").touch()
    counted: list[int] = []
    thread = threading.Thread(target=lambda: counted.append(nvml.nvmlDeviceGetCount()))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    (folder / "hang").unlink()
    thread.join(60)
    assert counted == [8]


def test_without_a_folder_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EAGLEMON_SIM_DIR", raising=False)
    with pytest.raises(module.NVMLError_LibraryNotFound):
        module.nvmlInit()
