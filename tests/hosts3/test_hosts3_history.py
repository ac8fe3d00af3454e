"""Fifteen minutes of each GPU, bounded, with gaps."""

from eaglemon.core.gpu_history import STEPS, GpuHistory, sparkline
from eaglemon.core.hosts import GpuSample, HostSample


def sample(at: float, used: int | None, error: str | None = None) -> HostSample:
    gpu = GpuSample(index=0, uuid="GPU-a", memory_used_bytes=used, power_w=100.0, error=error)
    return HostSample(at=at, gpus=(gpu,))


def test_a_step_is_the_mean_of_its_samples() -> None:
    history = GpuHistory()
    for second, used in enumerate([10, 20, 30, 40, 50, 7]):
        history.add(sample(1000.0 + second, used))
    trace = history.traces()["GPU-a"]
    assert trace.memory_used_bytes == (30.0,)
    assert trace.power_w == (100.0,)
    # Never told is not 0.
    assert trace.utilisation_percent == (None,)
    assert trace.until == 1005.0


def test_it_does_not_grow() -> None:
    history = GpuHistory()
    for second in range(0, 3000, 2):
        history.add(sample(second, 1))
    trace = history.traces()["GPU-a"]
    assert len(trace.memory_used_bytes) == STEPS == 180
    assert set(trace.memory_used_bytes) == {1.0}


def test_a_time_without_samples_is_a_gap() -> None:
    history = GpuHistory()
    history.add(sample(0.0, 1))
    history.add(sample(20.0, 2))
    history.add(sample(26.0, 3))
    assert history.traces()["GPU-a"].memory_used_bytes == (1.0, None, None, None, 2.0)
    history.add(sample(1e6, 4))
    assert len(history.traces()["GPU-a"].memory_used_bytes) == STEPS


def test_the_last_good_values_of_a_lost_gpu_are_kept() -> None:
    history = GpuHistory()
    history.add(sample(0.0, 1))
    assert history.traces()["GPU-a"].last_at == 0.0
    history.add(sample(1.0, 2))
    history.add(sample(2.0, None, error="GPU is lost"))
    trace = history.traces()["GPU-a"]
    assert trace.last is not None
    assert (trace.last.memory_used_bytes, trace.last_at) == (2, 1.0)


def test_a_clock_that_is_set_back_starts_again() -> None:
    history = GpuHistory()
    history.add(sample(1e6, 1))
    history.add(sample(1e6 - 3.0, 2))
    history.add(sample(10.0, 5))
    history.add(sample(15.0, 6))
    assert history.traces()["GPU-a"].memory_used_bytes == (5.0,)


def test_sparklines_have_a_fixed_scale() -> None:
    assert sparkline([0, 50, 100, None, 200], 100, 6) == " ▁▅█ █"
    assert sparkline([1, 2, 3], None, 3) == "   "
    assert sparkline(range(10), 10, 2) == "▇█"


def test_traces_are_built_once_a_step() -> None:
    history = GpuHistory()
    history.add(sample(0.0, 1))
    first = history.traces()
    history.add(sample(1.0, 1))
    assert history.traces() is first
