"""Metrics of the simulated engines in Prometheus's text format."""

import bisect
import math
from collections.abc import Sequence

Labels = dict[str, str]
_Key = tuple[tuple[str, str], ...]


class Metrics:
    """A set of gauges, counters and histograms; series appear when first set."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._values: dict[str, dict[_Key, float]] = {}
        self._bounds: dict[str, Sequence[float]] = {}
        self._buckets: dict[str, dict[_Key, list[int]]] = {}
        self._sums: dict[tuple[str, _Key], float] = {}

    def gauge(self, name: str, labels: Labels, value: float) -> None:
        """Set a gauge."""
        self._kinds.setdefault(name, "gauge")
        self._values.setdefault(name, {})[_key(labels)] = value

    def count(self, name: str, labels: Labels, amount: float = 0.0) -> None:
        """Add to a counter."""
        self._kinds.setdefault(name, "counter")
        series = self._values.setdefault(name, {})
        series[_key(labels)] = series.get(_key(labels), 0.0) + amount

    def observe(self, name: str, labels: Labels, bounds: Sequence[float], *values: float) -> None:
        """Add observations to a histogram (none at all makes it appear with zeros)."""
        self._kinds.setdefault(name, "histogram")
        self._bounds[name] = bounds
        key = _key(labels)
        buckets = self._buckets.setdefault(name, {}).setdefault(key, [0] * (len(bounds) + 1))
        for value in values:
            buckets[bisect.bisect_left(bounds, value)] += 1
        self._sums[name, key] = self._sums.get((name, key), 0.0) + sum(values)

    def value(self, name: str, labels: Labels) -> float:
        """Return a gauge or counter; 0 when it was never set."""
        return self._values.get(name, {}).get(_key(labels), 0.0)

    def render(self) -> bytes:
        """Return the text."""
        lines: list[str] = []
        for name, kind in self._kinds.items():
            lines += [f"# HELP {name} Simulated.", f"# TYPE {name} {kind}"]
            for key, value in self._values.get(name, {}).items():
                lines.append(f"{name}{_braces(key)} {_number(value)}")
            for key, buckets in self._buckets.get(name, {}).items():
                inside = 0
                for bound, found in zip((*self._bounds[name], math.inf), buckets, strict=True):
                    inside += found
                    labelled = (*key, ("le", _number(bound)))
                    lines.append(f"{name}_bucket{_braces(labelled)} {_number(inside)}")
                lines.append(f"{name}_sum{_braces(key)} {_number(self._sums[name, key])}")
                lines.append(f"{name}_count{_braces(key)} {_number(inside)}")
        return ("\n".join(lines) + "\n").encode()


def _key(labels: Labels) -> _Key:
    return tuple(sorted(labels.items()))


def _braces(key: _Key) -> str:
    if not key:
        return ""
    quoted = (name + '="' + _escape(value) + '"' for name, value in sorted(key))
    return "{" + ",".join(quoted) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return repr(float(value))
