"""Real outputs of nvidia-smi: what each of them must show stands in the cases' index.

They lie beside the repository (../shared/cases/nvidia) and are not part of it: without them these
tests are skipped. Two outputs of an H200 are in tests/captures.
"""

from pathlib import Path

import pytest

from eaglemon.core import nvidia_smi
from eaglemon.core.hosts import GpuSample
from eaglemon.core.nvidia_smi import MIB, SmiReading, read_gpus
from eaglemon.core.nvidia_smi_report import read_report
from eaglemon.core.nvidia_smi_table import read_table

CASES = Path(__file__).parents[3] / "shared/cases/nvidia"
MEMORY = nvidia_smi.HostMemory(total_bytes=128 << 30, available_bytes=100 << 30)

cases = pytest.mark.skipif(not CASES.is_dir(), reason="no ../shared/cases beside the repository")


def case(number: str) -> str:
    return (CASES / f"{number}.txt").read_text()


def table(number: str) -> SmiReading:
    return read_table(case(number))


def mib(gpu: GpuSample) -> tuple[float | None, float | None]:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return (None if used is None else used / MIB, None if total is None else total / MIB)


@cases
def test_001_a_passive_card() -> None:
    reading = table("001")
    (gpu,) = reading.gpus
    assert (gpu.name, gpu.bus_id, mib(gpu)) == ("NVIDIA L40S", "00000000:8D:00.0", (803, 46068))
    assert (gpu.utilisation_percent, gpu.temperature_c) == (0, 39)
    assert (gpu.power_w, gpu.power_limit_w) == (104, 325)
    assert reading.driver_version == "580.126.09"
    (process,) = reading.processes
    assert (process.pid, process.command, process.memory_bytes) == (5997, "python", 794 * MIB)
    assert process.mig_uuid is None


@cases
def test_002_memory_of_processes_is_unknown_under_wddm() -> None:
    reading = table("002")
    assert len(reading.processes) == 19
    assert {process.memory_bytes for process in reading.processes} == {None}
    assert reading.processes[14].command == "...Programs\\Microsoft VS Code\\Code.exe"
    assert mib(reading.gpus[0]) == (1342, 12288)


@cases
def test_003_the_narrow_columns_of_an_older_driver() -> None:
    reading = table("003")
    assert [gpu.index for gpu in reading.gpus] == list(range(8))
    assert [mib(gpu)[0] for gpu in reading.gpus] == [774, 4, 4, 4, 4, 4, 4, 4]
    assert reading.gpus[5].bus_id == "00000000:00:0B.0"
    assert reading.processes[0].gpu_uuid == reading.gpus[0].uuid


@cases
def test_005_a_report_with_most_fields_missing() -> None:
    reading = read_report(case("005"))
    (gpu,) = reading.gpus
    assert gpu.name == "NVIDIA GeForce RTX 4090"
    assert mib(gpu) == (2136, 24564)
    assert (gpu.utilisation_percent, gpu.temperature_c) == (2, 38)
    # Not Available is not 0, and what is cut off is not known.
    assert (gpu.ecc_uncorrected, gpu.power_w) == (None, None)
    assert gpu.throttle == ()
    assert reading.driver_version == "537.13"
    assert not reading.processes_known


@cases
def test_007_processes_of_another_pid_namespace_show_no_memory() -> None:
    reading = table("007")
    assert [mib(gpu)[0] for gpu in reading.gpus] == [20313, 20305]
    assert [(one.pid, one.memory_bytes) for one in reading.processes] == [(8, None), (1082, None)]


@cases
def test_008_no_processes_is_known() -> None:
    reading = table("008")
    assert (reading.processes, reading.processes_known) == ((), True)
    assert len(reading.gpus) == 2


@cases
@pytest.mark.parametrize(("number", "driver"), [("010", "595.78"), ("011", None), ("013", None)])
def test_jetsons_tell_nothing_and_use_the_hosts_memory(number: str, driver: str | None) -> None:
    reading = table(number)
    (gpu,) = reading.gpus
    assert gpu.name == "Orin (nvgpu)"
    assert (gpu.bus_id, gpu.uuid, gpu.error) == (None, "unknown-0", None)
    readings = (gpu.temperature_c, gpu.power_w, gpu.power_limit_w, gpu.utilisation_percent)
    assert readings == (None,) * 4
    assert mib(gpu) == (None, None)
    assert reading.driver_version == driver
    # Their list of processes is empty for ever: that is no proof.
    assert not reading.processes_known
    shared = nvidia_smi.with_host_memory(gpu, MEMORY)
    assert (shared.memory_used_bytes, shared.memory_is_host) == (28 << 30, True)


@cases
def test_013_an_empty_process_query_proves_nothing_on_tegra() -> None:
    gpus = table("013").gpus
    assert nvidia_smi.read_processes("", gpus) == ((), False)


@cases
@pytest.mark.parametrize(("number", "power"), [("014", 4), ("017", 9)])
def test_gb10_has_utilisation_but_no_memory_of_its_own(number: str, power: float) -> None:
    (gpu,) = table(number).gpus
    assert (gpu.name, gpu.bus_id) == ("NVIDIA GB10", "0000000F:01:00.0")
    assert (gpu.utilisation_percent, gpu.power_w, gpu.power_limit_w) == (0, power, None)
    shared = nvidia_smi.with_host_memory(gpu, MEMORY)
    assert shared.memory_total_bytes == 128 << 30
    assert shared.memory_is_host


@cases
def test_018_a_csv_query_of_gb10() -> None:
    (gpu,) = read_gpus(case("018")).gpus
    assert (gpu.name, mib(gpu)) == ("NVIDIA GB10", (None, None))
    assert nvidia_smi.with_host_memory(gpu, MEMORY).memory_is_host


@cases
def test_019_a_total_that_is_not_available() -> None:
    reading = read_gpus(case("019"), ("name", "memory.total", "driver_version"))
    assert mib(reading.gpus[0]) == (None, None)
    assert reading.driver_version == "580.126.09"


@cases
def test_021_mig_instances_of_a_gpu() -> None:
    (gpu,) = table("021").gpus
    assert gpu.utilisation_percent is None
    assert gpu.ecc_uncorrected is None
    assert gpu.mig is not None
    assert [(one.gpu_instance, one.memory_used_bytes) for one in gpu.mig] == [
        (7, 5 * MIB),
        (8, 5 * MIB),
    ]
    assert {one.memory_total_bytes for one in gpu.mig} == {4864 * MIB}
    assert gpu.mig[0].uuid == "00000000:18:00.0/7/0"


@cases
def test_023_a_newer_header_of_mig() -> None:
    (gpu,) = table("023").gpus
    assert gpu.mig is not None
    assert [(one.gpu_instance, one.memory_used_bytes) for one in gpu.mig] == [(2, 142 * MIB)]


@cases
def test_024_mig_is_decided_per_gpu() -> None:
    with_mig, without = table("024").gpus
    assert (with_mig.utilisation_percent, without.utilisation_percent) == (None, 0)
    assert with_mig.mig is not None
    assert len(with_mig.mig) == 1
    assert without.mig is None


@cases
def test_026_wide_numbers_and_pci_domains() -> None:
    one, other = table("026").gpus
    assert (one.bus_id, other.bus_id) == ("00000008:01:00.0", "00000009:01:00.0")
    assert (one.power_limit_w, mib(one)) == (1200, (2, 189471))
    assert (other.utilisation_percent, mib(other)) == (0, (4, 189471))


@cases
def test_028_a_busy_gpu_is_a_busy_gpu() -> None:
    reading = table("028")
    (gpu,) = reading.gpus
    assert (gpu.utilisation_percent, gpu.power_w, mib(gpu)[0]) == (100, 126, 1130)
    assert gpu.error is None
    # The list is cut off: nobody knows.
    assert not reading.processes_known


@cases
def test_029_a_failed_gpu_is_not_a_free_one() -> None:
    three, four, five = table("029").gpus
    assert four.index == 4
    assert four.error is not None
    assert mib(four) == (None, 46068)
    assert (four.temperature_c, four.power_w, four.name) == (None, None, None)
    assert (mib(three)[0], mib(five)[0]) == (0, 3)
    assert (three.error, five.error) == (None, None)


@cases
def test_031_a_lost_gpu_is_named_and_stays_as_a_row() -> None:
    said = case("031")
    problem = nvidia_smi.failure(said)
    assert problem is not None
    assert "GPU 0000:05:00.0: GPU is lost" in problem
    assert "reboot" in problem.lower()
    before = [
        GpuSample(index=0, uuid="GPU-a", bus_id="00000000:04:00.0", memory_used_bytes=1),
        GpuSample(index=1, uuid="GPU-b", bus_id="00000000:05:00.0", memory_used_bytes=1),
    ]
    other, lost = nvidia_smi.carry_over(before, said)
    assert lost.error == problem
    assert other.error == "no reading while GPU 0000:05:00.0 is lost"
    assert lost.memory_used_bytes is None


@cases
@pytest.mark.parametrize(
    ("number", "word"),
    [
        ("033", "reload the nvidia modules"),
        ("034", "servers may go on"),
        ("037", "no GPU here"),
    ],
)
def test_failures_say_the_next_step(number: str, word: str) -> None:
    said = case(number)
    for reading in (read_gpus(said), read_table(said), read_report(said)):
        assert reading.gpus == ()
        assert not reading.processes_known
        assert said.strip() in str(reading.driver_error)
        assert word in str(reading.driver_error)


@cases
def test_036_single_fields_may_be_unknown() -> None:
    fields = (
        "index",
        "name",
        "uuid",
        "temperature.gpu",
        "utilization.gpu",
        "power.draw",
        "power.limit",
        "memory.used",
        "memory.total",
    )
    gpus = read_gpus(case("036"), fields).gpus
    assert [gpu.error for gpu in gpus] == [None] * 3
    assert [gpu.temperature_c for gpu in gpus] == [None, 32, None]
    assert [gpu.utilisation_percent for gpu in gpus] == [None, None, 30]
    assert [gpu.power_w for gpu in gpus] == [None, 25.02, 15.47]
    assert {mib(gpu) for gpu in gpus} == {(6, 49140)}


@cases
def test_038_is_a_line_of_an_engine_and_no_reading() -> None:
    assert read_table(case("038")).gpus == ()


@cases
def test_no_case_is_forgotten() -> None:
    """Every file is read by some test above, and none of them makes a reader fail."""
    source = Path(__file__).read_text()
    for path in sorted(CASES.glob("*.txt")):
        assert f'"{path.stem}"' in source
        for read in (read_gpus, read_table, read_report):
            reading = read(path.read_text())
            for gpu in reading.gpus:
                assert gpu.memory_used_bytes != 0 or gpu.error is None
