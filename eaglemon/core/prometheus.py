"""The Prometheus text format, and differences of counters over a window."""

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s*([^\s{}]+)(?:\s+-?\d+(?:\.\d+)?)?\s*$"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value with its labels."""

    labels: Mapping[str, str] = field(default_factory=dict)
    value: float


class Metrics:
    """One reading of ``/metrics``."""

    def __init__(self, samples: Mapping[str, tuple[Sample, ...]], malformed: int = 0) -> None:
        self._samples = samples
        self.malformed = malformed
        """Lines that could not be read."""

    @property
    def names(self) -> frozenset[str]:
        """Names as they stand in the text (a counter ends in ``_total``)."""
        return frozenset(self._samples)

    def samples(self, name: str) -> tuple[Sample, ...]:
        """Return all samples of ``name``."""
        return self._samples.get(name, ())

    def numbers(self, name: str) -> tuple[Sample, ...]:
        """Return the samples of ``name`` that tell a number: NaN and infinity are "not known"."""
        return tuple(sample for sample in self.samples(name) if math.isfinite(sample.value))

    def value(self, name: str, **labels: str) -> float | None:
        """Return the first value of ``name`` with these labels, ``None`` without any."""
        found = self._select(self.samples(name), labels)
        return next((sample.value for sample in found), None)

    def sum(self, name: str, **labels: str) -> float | None:
        """Return the sum of the numbers that have these labels, ``None`` without any."""
        values = [sample.value for sample in self._select(self.numbers(name), labels)]
        return sum(values) if values else None

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of ``name`` for each value of ``label``."""
        sums: dict[str, float] = {}
        for sample in self.numbers(name):
            key = sample.labels.get(label)
            if key is not None:
                sums[key] = sums.get(key, 0.0) + sample.value
        return sums

    def _select(self, samples: Iterable[Sample], labels: Mapping[str, str]) -> list[Sample]:
        return [
            sample
            for sample in samples
            if all(sample.labels.get(key) == value for key, value in labels.items())
        ]


def parse_metrics(text: str) -> Metrics:
    """Read a body in the Prometheus text format; lines that make no sense are counted."""
    samples: dict[str, list[Sample]] = {}
    malformed = 0
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _read_sample(stripped)
        if found is None:
            malformed += 1
        else:
            name, sample = found
            samples.setdefault(name, []).append(sample)
    return Metrics({name: tuple(group) for name, group in samples.items()}, malformed)


def _read_sample(line: str) -> tuple[str, Sample] | None:
    match = _SAMPLE.match(line)
    if match is None:
        return None
    name, inner, number = match.groups()
    labels = _read_labels(inner) if inner else {}
    if labels is None:
        return None
    try:
        value = float(number)
    except ValueError:
        return None
    # float() also takes what the format does not know.
    if "_" in number:
        return None
    return name, Sample(labels=labels, value=value)


def _read_labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return labels if not text[at:].strip() else None
        labels[match.group(1)] = _ESCAPE.sub(_unescape, match.group(2))
        at = match.end()
    return labels


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match.group(1), match.group(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterDelta:
    """What counters grew by over a time."""

    elapsed_s: float
    values: Mapping[str, float]

    def rate(self, name: str) -> float | None:
        """Return the growth per second."""
        value = self.values.get(name)
        return value / self.elapsed_s if value is not None and self.elapsed_s > 0 else None


class CounterWindow:
    """Readings of counters that never go down, and their growth over the last seconds.

    A counter that did go down was reset (the server restarted): growth counts from zero again,
    as Prometheus' ``increase`` does. Readings older than ``keep_s`` are forgotten.
    """

    def __init__(self, keep_s: float = 120.0, max_readings: int = 4096) -> None:
        self._keep_s = keep_s
        self._readings: deque[tuple[float, dict[str, float]]] = deque(maxlen=max_readings)
        self._last: dict[str, float] = {}
        self._grown: dict[str, float] = {}
        self._first_at: float | None = None
        self.resets = 0
        """How often a counter was seen to start again."""

    def add(self, at: float, values: Mapping[str, float]) -> None:
        """Take a reading made at ``at`` seconds; readings out of order are left out."""
        if self._readings and at <= self._readings[-1][0]:
            return
        reset = False
        for name, value in values.items():
            before = self._last.get(name)
            if before is None:
                # A counter seen for the first time has grown by nothing that we know.
                self._grown.setdefault(name, 0.0)
            elif value < before:
                reset = True
                self._grown[name] += value
            else:
                self._grown[name] += value - before
            self._last[name] = value
        self.resets += reset
        if self._first_at is None:
            self._first_at = at
        self._readings.append((at, {name: self._grown[name] for name in values}))
        while len(self._readings) > 2 and self._readings[1][0] <= at - self._keep_s:
            self._readings.popleft()

    def restart(self) -> None:
        """Take the news that the counters begin again, however high they are when seen next."""
        self._last = dict.fromkeys(self._last, 0.0)
        self.resets += 1

    def total(self) -> CounterDelta | None:
        """Return the growth since the first reading ever, ``None`` before the second."""
        if self._first_at is None or len(self._readings) < 2:
            return None
        last_at, values = self._readings[-1]
        return CounterDelta(elapsed_s=last_at - self._first_at, values=values)

    def delta(self, window_s: float, now: float) -> CounterDelta | None:
        """Return the growth over about the last ``window_s`` seconds before ``now``.

        It runs from the last reading before the window, or the first within it, to the newest;
        ``None`` where fewer than two readings reach into the window.
        """
        if len(self._readings) < 2 or self._readings[-1][0] < now - window_s:
            return None
        start = now - window_s
        first = self._readings[0]
        for reading in self._readings:
            if reading[0] > start:
                break
            first = reading
        last = self._readings[-1]
        if last[0] <= first[0]:
            return None
        return CounterDelta(
            elapsed_s=last[0] - first[0],
            values={
                name: value - first[1][name] for name, value in last[1].items() if name in first[1]
            },
        )
