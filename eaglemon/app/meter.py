"""Live acceptance and load of one server, from its metrics and its log lines."""

from collections import deque

from eaglemon.core.phases import DecodeStats
from eaglemon.core.prometheus import CounterWindow
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.views import AcceptanceView, LoadView
from eaglemon.engines.base import Gauges

SHOWN_WINDOW_S = 60.0
SHORT_WINDOW_S = 5.0
KEPT_S = 120.0
HISTORY_POINTS = 900
LINE_FRESH_S = 60.0
"""A log line's figures are shown as live no longer than this."""

_TOKENS, _STEPS, _ACCEPTED, _PROPOSED, _POSITION = (
    "generation_tokens",
    "steps",
    "accepted",
    "proposed",
    "position_",
)


class Meter:
    """Collects readings and derives what is shown; all times of one monotonic clock."""

    def __init__(self, *, ceiling: int | None) -> None:
        self._ceiling = ceiling
        self._window = CounterWindow()
        self._gauges: Gauges | None = None
        self._gauges_at = 0.0
        self._line: DecodeStats | None = None
        self._line_at = 0.0
        self.accept_history: deque[tuple[float, float]] = deque(maxlen=HISTORY_POINTS)
        self.tok_s_history: deque[tuple[float, float]] = deque(maxlen=HISTORY_POINTS)
        self.missing = ""
        """Why there are no metrics, with the fix; empty while they come."""

    def scrape_seen(self, gauges: Gauges, *, at: float, wall: float) -> bool:
        """Take a reading of the metrics; return whether counters moved since the last."""
        self._gauges, self._gauges_at = gauges, at
        self.missing = ""
        before = self._window.delta(KEPT_S, at)
        self._window.add(at, _counters(gauges))
        after = self._window.delta(KEPT_S, at)
        counts = self._accept(SHORT_WINDOW_S, at)
        if counts is not None and counts.accept_length is not None:
            self.accept_history.append((wall, counts.accept_length))
        tok_s = self._tok_s(at)
        if tok_s is not None:
            self.tok_s_history.append((wall, tok_s))
        return before is not None and after is not None and before.values != after.values

    def line_seen(self, stats: DecodeStats, *, at: float, wall: float) -> None:
        """Take the figures of a periodic log line."""
        self._line, self._line_at = stats, at
        if stats.accept_length is not None:
            self.accept_history.append((wall, stats.accept_length))
        if stats.tok_s is not None and self._gauges is None:
            self.tok_s_history.append((wall, stats.tok_s))

    def acceptance(self, now: float) -> AcceptanceView | None:
        """Return the acceptance of the last minute; ``None`` where nobody tells."""
        counts = self._accept(SHOWN_WINDOW_S, now)
        if counts is not None:
            return AcceptanceView(
                accept_length=counts.accept_length,
                ceiling=self._ceiling,
                per_position=counts.survival,
                window_s=SHOWN_WINDOW_S,
                source="counters",
                age_s=now - self._gauges_at,
            )
        line = self._line
        if line is not None and line.accept_length is not None:
            age_s = now - self._line_at
            if age_s <= LINE_FRESH_S:
                return AcceptanceView(
                    accept_length=line.accept_length,
                    ceiling=self._ceiling,
                    per_position=line.per_position,
                    source="log line",
                    age_s=age_s,
                )
        return None

    def load(self, now: float) -> LoadView | None:
        """Return what the server is doing; ``None`` where nobody tells."""
        if self._gauges is not None and not self.missing:
            return LoadView(
                tok_s=self._tok_s(now),
                running=self._gauges.running,
                waiting=self._gauges.waiting,
                kv_used_fraction=self._gauges.kv_used_fraction,
                source="metrics",
                age_s=now - self._gauges_at,
            )
        line = self._line
        if line is not None and now - self._line_at <= LINE_FRESH_S:
            return LoadView(
                tok_s=line.tok_s,
                running=line.running,
                waiting=line.waiting,
                kv_used_fraction=line.kv_used_fraction,
                source="log line",
                age_s=now - self._line_at,
            )
        return None

    def _tok_s(self, now: float) -> float | None:
        if self._gauges is not None and self._gauges.tok_s is not None:
            return self._gauges.tok_s
        delta = self._window.delta(SHORT_WINDOW_S, now)
        return delta.rate(_TOKENS) if delta else None

    def _accept(self, window_s: float, now: float) -> AcceptCounts | None:
        delta = self._window.delta(window_s, now)
        if delta is None or not delta.values.get(_STEPS):
            return None
        values = delta.values
        positions: list[int] = []
        while (key := f"{_POSITION}{len(positions)}") in values:
            positions.append(int(values[key]))
        return AcceptCounts(
            steps=int(values[_STEPS]),
            accepted=int(values[_ACCEPTED]),
            proposed=int(values[_PROPOSED]) if _PROPOSED in values else None,
            per_position=tuple(positions),
        )


def _counters(gauges: Gauges) -> dict[str, float]:
    counters: dict[str, float] = {}
    if gauges.generation_tokens is not None:
        counters[_TOKENS] = gauges.generation_tokens
    if gauges.accept is not None:
        counters[_STEPS] = gauges.accept.steps
        counters[_ACCEPTED] = gauges.accept.accepted
        if gauges.accept.proposed is not None:
            counters[_PROPOSED] = gauges.accept.proposed
        for i, count in enumerate(gauges.accept.per_position):
            counters[f"{_POSITION}{i}"] = count
    return counters
