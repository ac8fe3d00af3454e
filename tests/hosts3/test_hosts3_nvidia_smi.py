"""The readers of nvidia-smi on an H200's own output, and on cells."""

from pathlib import Path

import pytest

from eaglemon.core import nvidia_smi
from eaglemon.core.hosts import GpuSample
from eaglemon.core.nvidia_smi import MIB, read_gpus
from eaglemon.core.nvidia_smi_report import read_report

GPU = Path(__file__).parents[1] / "captures/nvidia-smi-580-h200"
UUID = "GPU-00000000-1111-2222-3333-444444444444"


def test_the_query_of_an_h200() -> None:
    (gpu,) = read_gpus((GPU / "nvidia-smi-query-gpu.csv").read_text()).gpus
    assert (gpu.uuid, gpu.name) == (UUID, "NVIDIA H200")
    # Known to be nothing: the driver's 616 MiB are not counted.
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (0, 143771 * MIB)
    assert (gpu.power_w, gpu.power_limit_w) == (127.67, 700.0)
    assert gpu.ecc_uncorrected == 0
    assert gpu.bus_id is None


def test_the_report_of_an_h200() -> None:
    reading = read_report((GPU / "nvidia-smi-q.txt").read_text())
    (gpu,) = reading.gpus
    assert (gpu.uuid, gpu.bus_id) == (UUID, "00000000:00:06.0")
    assert gpu.memory_reserved_bytes == 616 * MIB
    assert (gpu.power_w, gpu.power_limit_w, gpu.temperature_c) == (127.66, 700.0, 41)
    assert (gpu.utilisation_percent, gpu.ecc_uncorrected, gpu.throttle) == (0, 0, ())
    assert (reading.processes, reading.processes_known) == ((), True)


def test_processes_of_a_report() -> None:
    reading = read_report(
        "\n".join(
            [
                "GPU 00000000:01:00.0",
                "    Product Name                : NVIDIA L4",
                "    Processes",
                "        GPU instance ID         : N/A",
                "        Process ID              : 12",
                "            Type                : C",
                "            Name                : python",
                "            Used GPU Memory     : 100 MiB",
                "        GPU instance ID         : N/A",
                "        Process ID              : 13",
                "            Name                : ray",
                "            Used GPU Memory     : Not available in WDDM driver model",
            ]
        )
    )
    found = [(one.pid, one.command, one.memory_bytes) for one in reading.processes]
    assert found == [(12, "python", 100 * MIB), (13, "ray", None)]


def test_gpus_are_numbered_in_pci_order() -> None:
    rows = "0, GPU-a, 00000000:81:00.0\n1, GPU-b, 00000000:21:00.0\n"
    gpus = read_gpus(rows, ("index", "uuid", "pci.bus_id")).gpus
    assert [(gpu.index, gpu.uuid) for gpu in gpus] == [(0, "GPU-b"), (1, "GPU-a")]


def test_a_row_of_a_lost_gpu() -> None:
    rows = "0, GPU-a, NVIDIA A40, [GPU is lost], [GPU is lost]\n"
    (gpu,) = read_gpus(rows, ("index", "uuid", "name", "memory.total", "memory.used")).gpus
    assert gpu.error == "GPU is lost; reboot the host to recover it"
    assert (gpu.uuid, gpu.memory_used_bytes) == ("GPU-a", None)


def test_processes_of_a_query() -> None:
    rows = "GPU-a, 71, python -c a, b, 120\nGPU-a, 72, [Not Found], [N/A]\n"
    processes, known = nvidia_smi.read_processes(rows, [GpuSample(index=0, uuid="GPU-a")])
    assert known
    found = [(one.pid, one.command, one.memory_bytes) for one in processes]
    assert found == [(71, "python -c a, b", 120 * MIB), (72, None, None)]


@pytest.mark.parametrize(
    ("cell", "reasons"),
    [
        ("0x0000000000000001", ()),
        ("0x0000000000000044", ("power cap", "too hot (hardware)")),
        ("[N/A]", None),
    ],
)
def test_throttle_reasons(cell: str, reasons: tuple[str, ...] | None) -> None:
    assert nvidia_smi.throttle_reasons(cell) == reasons


def test_a_gpu_with_memory_of_its_own_keeps_it() -> None:
    memory = nvidia_smi.read_meminfo("MemTotal: 8 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\n")
    assert memory == nvidia_smi.HostMemory(total_bytes=8192, available_bytes=4096)
    gpu = GpuSample(index=0, uuid="a", memory_used_bytes=0, memory_total_bytes=1)
    assert nvidia_smi.with_host_memory(gpu, memory) == gpu
    assert nvidia_smi.read_meminfo("garbage") is None
