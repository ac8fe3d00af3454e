"""The last 15 minutes of each GPU, in memory that does not grow: means over 5 s.

A time without samples is a gap (``None``), never a line drawn over it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eaglemon.core.hosts import GpuSample, HostSample

SPAN_S = 900.0
STEP_S = 5.0
STEPS = int(SPAN_S / STEP_S)
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTrace:
    """A GPU's past, oldest first; the three lists are of equal length, one value for each step."""

    step_s: float = STEP_S
    until: float
    """Where the last step ends (unix seconds of this computer)."""
    memory_used_bytes: tuple[float | None, ...] = ()
    utilisation_percent: tuple[float | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    last: GpuSample | None = None
    """The last sample without an error: what a lost GPU showed before it was lost."""
    last_at: float | None = None
    """When that was (unix seconds of this computer)."""


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.count += 1

    def take(self) -> float | None:
        value = self.total / self.count if self.count else None
        self.total, self.count = 0.0, 0
        return value


class _Track:
    """One GPU: the steps that are full, and the one under way."""

    def __init__(self) -> None:
        self.steps: tuple[deque[float | None], ...] = tuple(deque(maxlen=STEPS) for _ in range(3))
        self.means = (_Mean(), _Mean(), _Mean())
        self.last: GpuSample | None = None
        self.last_at: float | None = None

    def close_step(self, empty_after: int) -> None:
        """End the step under way, and add the steps in which nothing came."""
        for steps, mean in zip(self.steps, self.means, strict=True):
            steps.append(mean.take())
            steps.extend([None] * min(empty_after, STEPS))


class GpuHistory:
    """Collects the samples of one host."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._step: int | None = None
        self._traces: dict[str, GpuTrace] | None = None

    def add(self, sample: HostSample) -> None:
        """Take a sample; one that is older than the step under way is left out."""
        step = int(sample.at // STEP_S)
        if self._step is None:
            self._step = step
        if step < self._step - STEPS:
            # The host's clock was set back: what was collected cannot be placed any more.
            self._tracks, self._step = {}, step
        if step < self._step:
            return
        if step > self._step:
            for track in self._tracks.values():
                track.close_step(step - self._step - 1)
            self._step = step
            self._traces = None
        for gpu in sample.gpus:
            self._add(gpu, sample.at)

    def traces(self) -> Mapping[str, GpuTrace]:
        """Return the past of each GPU, by uuid; the same object until another step is full."""
        if self._traces is None:
            until = (self._step or 0) * STEP_S
            self._traces = {
                uuid: GpuTrace(
                    until=until,
                    memory_used_bytes=tuple(track.steps[0]),
                    utilisation_percent=tuple(track.steps[1]),
                    power_w=tuple(track.steps[2]),
                    last=track.last,
                    last_at=track.last_at,
                )
                for uuid, track in self._tracks.items()
            }
        return self._traces

    def _add(self, gpu: GpuSample, at: float) -> None:
        track = self._tracks.get(gpu.uuid)
        if track is None:
            track = self._tracks[gpu.uuid] = _Track()
            self._traces = None
        was_well = track.last is not None and track.last_at is not None
        if gpu.error is None:
            track.last, track.last_at = gpu, at
            if not was_well:
                self._traces = None
        elif was_well and self._traces is not None:
            trace = self._traces.get(gpu.uuid)
            if trace is not None and trace.last_at != track.last_at:
                self._traces = None  # its last values are wanted now
        for mean, value in zip(
            track.means,
            (gpu.memory_used_bytes, gpu.utilisation_percent, gpu.power_w),
            strict=True,
        ):
            mean.add(value)


def sparkline(values: Sequence[float | None], most: float | None, width: int) -> str:
    """Return the last ``width`` values as bars on the fixed scale from 0 to ``most``.

    A gap is a space; without a scale the line is empty.
    """
    if not most or most <= 0:
        return " " * width
    shown = list(values)[-width:] if width else []
    cells = [
        " " if value is None else _BARS[min(int(max(value, 0) / most * 8), 7)] for value in shown
    ]
    return "".join(cells).rjust(width)
