"""Real outputs of nvidia-smi as the console draws them: nothing clipped, nothing made up.

They lie beside the repository (../shared/cases/nvidia) and are not part of it: without them these
tests are skipped. What each output must be read as is tested in tests/hosts3.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.cli.gpu_text import gpu_rows, process_rows
from eaglemon.core import nvidia_smi
from eaglemon.core.gpu_history import GpuHistory
from eaglemon.core.hosts import GpuProcess, GpuSample, HostSample, HostSpec, LinkState
from eaglemon.core.nvidia_smi import SmiReading, read_gpus
from eaglemon.core.nvidia_smi_report import read_report
from eaglemon.core.nvidia_smi_table import read_table
from eaglemon.core.views import HostView, Snapshot
from eaglemon.tui.gpu_panels import gpu_lines
from eaglemon.tui.host_panels import process_lines
from eaglemon.tui.widgets.host_list import HostList
from tests.tui import snapshots

CASES = Path(__file__).parents[3] / "shared/cases/nvidia"
MEMORY = nvidia_smi.HostMemory(total_bytes=128 << 30, available_bytes=100 << 30)
WIDTHS = (34, 54, 74, 94)
CSV_FIELDS = {
    "018": ("name", "memory.total", "memory.free", "memory.used", "temperature.gpu", "power.draw"),
    "019": ("name", "memory.total", "driver_version"),
    "036": (
        *("index", "name", "uuid", "temperature.gpu", "utilization.gpu", "power.draw"),
        *("power.limit", "memory.used", "memory.total"),
    ),
}
NUMBERS = [path.stem for path in sorted(CASES.glob("*.txt"))]

cases = pytest.mark.skipif(not CASES.is_dir(), reason="no ../shared/cases beside the repository")


def reading_of(number: str) -> SmiReading:
    text = (CASES / f"{number}.txt").read_text()
    if number in CSV_FIELDS:
        return read_gpus(text, CSV_FIELDS[number])
    return read_report(text) if "NVSMI LOG" in text else read_table(text)


def host_of(number: str) -> HostView:
    reading = reading_of(number)
    gpus = tuple(
        nvidia_smi.with_host_memory(gpu, MEMORY) if gpu.memory_total_bytes is None else gpu
        for gpu in reading.gpus
    )
    sample = HostSample(
        at=snapshots.AT,
        gpus=gpus,
        processes=reading.processes,
        processes_known=reading.processes_known,
        driver_error=reading.driver_error,
    )
    return HostView(
        spec=HostSpec(name="gpu-a"), state=LinkState.UP, sample=sample, sample_age_s=0.4
    )


def drawn(host: HostView, width: int) -> tuple[list[str], list[str]]:
    """Return the lines of the host's panels, and the rows of the first screen."""
    lines = [line.plain for line in gpu_lines(host, width)]
    lines += [line.plain for line in process_lines(host, (), width)]
    fleet = HostList()
    fleet._snapshot = Snapshot(at=snapshots.AT, hosts=(host,))
    header, rows = fleet.build(width)
    return lines, [row.content.plain for row in rows] + ([header.plain] if header else [])


def words(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@cases
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("number", NUMBERS)
def test_what_the_command_prints_is_on_the_screen(number: str, width: int) -> None:
    host = host_of(number)
    assert host.sample is not None
    lines, rows = drawn(host, width)
    assert max(map(len, [*lines, *rows])) <= width
    panel, fleet = words(lines), words(rows)
    for _, name, memory, util, temperature, power, notes in gpu_rows(host)[1:]:
        if notes.startswith("MIG") or "/" in notes:
            assert memory in panel
            assert memory in fleet
            continue
        if "host" not in notes and notes:
            assert notes in panel
            assert notes.split()[0] in fleet
            continue
        assert memory in panel
        assert memory in fleet
        assert util in panel
        assert util in fleet
        assert temperature.removesuffix(" C") in panel
        assert power in panel or power.endswith("-")
        assert name.split()[-1] in panel or len(name) > width - 14
        if notes:
            assert "host memory" in panel
            assert "host memory" in fleet
    if host.sample.driver_error:
        assert host.sample.driver_error.split(";")[0].split(". ")[0] in panel
        assert "driver:" in fleet
    for row in process_rows(host.sample)[1:]:
        assert row[1] in panel
        assert row[3] in panel


@cases
def test_unknown_is_a_dash_and_never_a_zero() -> None:
    lines, rows = drawn(host_of("010"), 54)
    assert re.search(r"busy +- *$", lines[1])
    assert "- °C" in lines[0]
    assert "power" in lines[3]
    assert lines[3].endswith(" -")
    assert "28.0/128.0" in lines[2]
    gpu = next(row for row in rows if row.startswith("  0 "))
    assert gpu.split()[-2:] == ["-", "-"]
    assert "the driver does not tell" in lines


@cases
def test_a_failed_gpu_is_no_free_one() -> None:
    host = host_of("029")
    lines, rows = drawn(host, 94)
    four = next(line for line in lines if line.startswith("GPU 4"))
    assert "✗" in four
    assert "0.0/" not in four
    assert any(row.strip().startswith("4 ✗") for row in rows)


def test_a_lost_gpu_keeps_its_last_values_in_its_red_row() -> None:
    whole = snapshots.FLEET.hosts[0]
    assert whole.sample is not None
    past = GpuHistory()
    past.add(replace(whole.sample, at=snapshots.AT - 12))
    lost = replace(whole.sample.gpus[3], error="GPU is lost", memory_used_bytes=None, name=None)
    hung = replace(whole.sample.gpus[4], error="driver has not answered for 12 s")
    gpus = (*whole.sample.gpus[:3], lost, hung)
    past.add(replace(whole.sample, gpus=gpus))
    host = replace(whole, sample=replace(whole.sample, gpus=gpus), history=past.traces())
    for width in WIDTHS:
        lines, rows = drawn(host, width)
        assert max(map(len, [*lines, *rows])) <= width
        panel = words(lines)
        assert "GPU 3 NVIDIA H200 ✗ GPU is lost" in panel
        assert "last 112.3/140.4 GiB, busy 94 %, 58 °C, 531 W, 12 s ago" in panel
        assert "driver has not answered for 12 s" in panel
        if width >= 54:
            assert "✗ GPU is lost · last 112.3/140.4 GiB" in words(rows)
    red = [line for line in gpu_lines(host, 54) if "last 112.3" in line.plain]
    assert [str(span.style) for line in red for span in line.spans] == ["$state-failed"]


def test_processes_say_who_where_and_for_what() -> None:
    host = snapshots.FLEET.hosts[0]
    assert host.sample is not None
    gpu = host.sample.gpus[0]
    many = (
        GpuProcess(
            gpu_uuid=gpu.uuid,
            pid=4_194_304,
            memory_bytes=1 << 40,
            user="a-long-user-name",
            command="python -m vllm.entrypoints",
            container="vllm-1",
            container_pid=7,
        ),
        GpuProcess(gpu_uuid=gpu.uuid, pid=640, run_id="run-ready"),
        GpuProcess(gpu_uuid="elsewhere", pid=9),
    )
    with_them = replace(host, sample=replace(host.sample, processes=many))
    for width in WIDTHS:
        lines = [line.plain for line in process_lines(with_them, (snapshots.ready(),), width)]
        assert max(map(len, lines)) <= width
        text = words(lines)
        assert "4194304" in text
        assert "1024 GiB" in text
        if width >= 54:
            assert "k25-eagle3" in text
            assert "[vllm-1 pid 7] python -m vllm" in text


@pytest.mark.parametrize("state", [LinkState.STALE, LinkState.DOWN, LinkState.CONNECTING])
def test_figures_of_before_are_called_the_last_known(state: LinkState) -> None:
    host = replace(host_with_odd_gpu(), state=state, detail="", sample_age_s=72.0)
    (row, *_) = [line for line in map(words, ([one] for one in drawn(host, 90)[1])) if line]
    assert f"{state.value.upper()} 1 m 12 s" in row
    assert row.endswith("last known")


def test_troubles_and_instances_are_rows_of_the_first_screen() -> None:
    host = host_with_odd_gpu()
    rows = drawn(host, 74)[1]
    text = words(rows)
    assert "MIG 7:0 1g.5gb" in text
    assert "▲ XID 79 reported by the driver ▲ 2 uncorrected memory errors" in text
    assert "• 2 GPUs are given to a virtual machine (vfio)" in text
    assert "next try in 12 s, r tries now" in text


def host_with_odd_gpu() -> HostView:
    from eaglemon.core.hosts import MigInstance

    host = snapshots.FLEET.hosts[0]
    assert host.sample is not None
    part = MigInstance(
        uuid="MIG-1",
        gpu_instance=7,
        compute_instance=0,
        name="1g.5gb",
        memory_used_bytes=5 << 20,
        memory_total_bytes=5 << 30,
    )
    odd: GpuSample = replace(host.sample.gpus[0], xid=79, ecc_uncorrected=2, mig=(part,))
    sample = replace(
        host.sample, gpus=(odd,), notes=("2 GPUs are given to a virtual machine (vfio)",)
    )
    return replace(host, sample=sample, next_try_s=12.3)
