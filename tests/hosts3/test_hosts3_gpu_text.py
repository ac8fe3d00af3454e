"""GPUs as lines of text: what is odd is said, what is not known is a dash."""

from dataclasses import replace

from eaglemon.cli.gpu_text import GPU_RIGHT, gpu_rows, notes_of, process_rows
from eaglemon.cli.tables import columns
from eaglemon.core.gpu_history import GpuTrace
from eaglemon.core.hosts import (
    GpuProcess,
    GpuSample,
    HostSample,
    HostSpec,
    LinkState,
    MigInstance,
)
from eaglemon.core.views import HostView

GIB = 1 << 30
WELL = GpuSample(
    index=0,
    uuid="GPU-a",
    name="NVIDIA H200",
    memory_used_bytes=80 * GIB,
    memory_total_bytes=140 * GIB,
    utilisation_percent=0,
    temperature_c=40,
    power_w=127.6,
    power_limit_w=700.0,
    throttle=(),
    ecc_uncorrected=0,
)


def host(*gpus: GpuSample, **history: GpuTrace) -> HostView:
    return HostView(
        spec=HostSpec(name="a"),
        state=LinkState.UP,
        sample=HostSample(at=100.0, gpus=gpus),
        history=history,
    )


def line(view: HostView, number: int) -> str:
    return columns(gpu_rows(view), right=GPU_RIGHT)[number]


def test_a_healthy_gpu() -> None:
    assert line(host(WELL), 1).split() == [
        "0", "NVIDIA", "H200", "80.0/140.0", "0", "%", "40", "C", "128/700",
    ]  # fmt: skip


def test_nothing_known_is_dashes() -> None:
    assert line(host(GpuSample(index=3, uuid="GPU-b")), 1).split() == ["3"] + ["-"] * 5


def test_oddities_are_said() -> None:
    odd = replace(WELL, throttle=("power cap",), ecc_uncorrected=2, xid=79, memory_is_host=True)
    assert notes_of(odd, None, 0.0) == (
        "memory is the host's, power cap, 2 uncorrected ECC errors, XID 79"
    )


def test_a_lost_gpu_shows_its_last_values() -> None:
    lost = GpuSample(index=0, uuid="GPU-a", name="NVIDIA H200", error="GPU is lost")
    trace = GpuTrace(until=95.0, last=WELL, last_at=88.0)
    row = line(host(lost, **{"GPU-a": trace}), 1)
    assert row.endswith("GPU is lost (last: 80.0/140.0 GiB, 12 s ago)")
    assert " 0 %" not in row


def test_mig_instances_are_rows_of_their_gpu() -> None:
    parts = (
        MigInstance(
            uuid="MIG-1",
            gpu_instance=1,
            compute_instance=0,
            name="3g.71gb",
            memory_used_bytes=GIB,
            memory_total_bytes=70 * GIB,
        ),
        MigInstance(uuid="MIG-2"),
    )
    view = host(replace(WELL, utilisation_percent=None, mig=parts))
    assert line(view, 2).split() == ["0/1:0", "3g.71gb", "1.0/70.0", "-", "-", "-", "MIG-1"]
    assert line(view, 3).split() == ["0/-:-", "MIG", "-", "-", "-", "-", "MIG-2"]


def test_processes_say_whose_they_are() -> None:
    sample = HostSample(
        at=1.0,
        gpus=(WELL,),
        processes=(
            GpuProcess(gpu_uuid="GPU-a", pid=7, container="vllm", container_pid=1, run_id="run-1"),
            GpuProcess(gpu_uuid="GPU-x", pid=8, command="x" * 100),
        ),
    )
    header, one, other = process_rows(sample)
    assert "BELONGS TO" in header
    assert one == ("  0", "7", "-", "-", "vllm (1)", "run-1", "-")
    assert other[0].strip() == "-"
    assert other[-1] == "x" * 57 + "..."


def test_the_past_is_drawn_on_the_scale_of_the_whole_memory() -> None:
    trace = GpuTrace(until=100.0, memory_used_bytes=(0.0, 70.0 * GIB, None, 140.0 * GIB))
    row = gpu_rows(host(WELL, **{"GPU-a": trace}), past=True)[1]
    assert row[-1].strip() == "▁▅ █"
