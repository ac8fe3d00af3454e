"""Live acceptance and load of one server, from its metrics and its log lines.

Sources in order: differences of counters, the engine's gauge of its own last interval, its
periodic log line. A lifetime average is never shown.
"""

from collections import deque
from collections.abc import Iterator

from eaglemon.core.phases import DecodeStats
from eaglemon.core.prometheus import CounterDelta, CounterWindow
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.views import AcceptanceView, AcceptanceWindow, LoadView
from eaglemon.engines.base import Gauges

SHOWN_WINDOW_S = 60.0
SHORT_WINDOW_S = 5.0
KEPT_S = 120.0
HISTORY_POINTS = 900
LINE_FRESH_S = 60.0
"""A log line's figures are shown as live no longer than this."""
KEPT_LINES = 8192
COLLAPSED_BELOW, COLLAPSED_STEPS = 1.1, 20
"""An accept length below this, over this many steps or more, is no longer chance."""

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
        self._window = CounterWindow(KEPT_S)
        self._gauges: Gauges | None = None
        self._gauges_at = 0.0
        self._lines: deque[tuple[float, DecodeStats]] = deque(maxlen=KEPT_LINES)
        # One engine tells load and acceptance in lines of their own.
        self._load_line: tuple[float, DecodeStats] | None = None
        self._accept_line: tuple[float, DecodeStats] | None = None
        self.accept_history: deque[tuple[float, float]] = deque(maxlen=HISTORY_POINTS)
        self.tok_s_history: deque[tuple[float, float]] = deque(maxlen=HISTORY_POINTS)
        self.missing = ""
        """Why there are no metrics, with the fix; empty while they come."""

    def scrape_seen(self, gauges: Gauges, *, at: float, wall: float) -> bool:
        """Take a reading of the metrics; return whether counters moved since the last."""
        earlier = self._gauges
        if earlier is not None and earlier.started_at != gauges.started_at:
            self._window.restart()
        self._gauges, self._gauges_at = gauges, at
        self.missing = ""
        before = self._window.delta(KEPT_S, at)
        self._window.add(at, self._counters(gauges))
        after = self._window.delta(KEPT_S, at)
        counts = _accept(self._window.delta(SHORT_WINDOW_S, at))
        if counts is not None and counts.accept_length is not None:
            self.accept_history.append((wall, counts.accept_length))
        tok_s = self._tok_s(at)
        if tok_s is not None:
            self.tok_s_history.append((wall, tok_s))
        return before is not None and after is not None and before.values != after.values

    def line_seen(self, stats: DecodeStats, *, at: float, wall: float) -> None:
        """Take the figures of a periodic log line."""
        self._lines.append((at, stats))
        if stats.accept_length is not None:
            self._accept_line = (at, stats)
            self.accept_history.append((wall, stats.accept_length))
        if stats.tok_s is not None:
            self._load_line = (at, stats)
            if self._gauges is None:
                self.tok_s_history.append((wall, stats.tok_s))

    def lines_since(self, at: float) -> tuple[DecodeStats, ...]:
        """Return the figures of the log lines that were read after ``at``."""
        return tuple(stats for read_at, stats in self._lines if read_at > at)

    def acceptance(self, now: float, *, since: str = "since ready") -> AcceptanceView | None:
        """Return the acceptance of the last minute; ``None`` where there was nothing to accept.

        ``since`` names the span from the first reading on.
        """
        windows = tuple(self._windows(now, since))
        counts = _accept(self._window.delta(SHOWN_WINDOW_S, now))
        if counts is not None:
            return AcceptanceView(
                accept_length=counts.accept_length,
                ceiling=self._ceiling,
                per_position=counts.survival,
                conditional=counts.conditional,
                window_s=SHOWN_WINDOW_S,
                source="counters",
                age_s=now - self._gauges_at,
                collapsed=_is_collapsed(counts.accept_length, counts.steps),
                windows=windows,
            )
        told = self._told_by_engine(now)
        if told is None and not windows and not self.missing:
            return None
        length, positions, source, age_s = told or (None, (), "nothing", 0.0)
        return AcceptanceView(
            accept_length=length,
            ceiling=self._ceiling,
            per_position=positions,
            source=source,
            age_s=age_s,
            # An interval of the engine is dozens of steps.
            collapsed=_is_collapsed(length, COLLAPSED_STEPS),
            windows=windows,
            hint=self.missing,
        )

    def load(self, now: float, *, since: str = "since ready") -> LoadView | None:
        """Return what the server is doing; ``None`` where nobody tells."""
        if self._gauges is not None and not self.missing:
            return LoadView(
                tok_s=self._tok_s(now),
                running=self._gauges.running,
                waiting=self._gauges.waiting,
                kv_used_fraction=self._gauges.kv_used_fraction,
                source="metrics",
                age_s=now - self._gauges_at,
                tok_s_windows=tuple(
                    (label, rate)
                    for label, delta in self._deltas(now, since)
                    if (rate := delta.rate(_TOKENS)) is not None
                ),
            )
        if self._load_line is not None and now - self._load_line[0] <= LINE_FRESH_S:
            read_at, line = self._load_line
            return LoadView(
                tok_s=line.tok_s,
                running=line.running,
                waiting=line.waiting,
                kv_used_fraction=line.kv_used_fraction,
                source="log line",
                age_s=now - read_at,
            )
        return None

    def _told_by_engine(self, now: float) -> tuple[float, tuple[float, ...], str, float] | None:
        """Return length, positions, source and age of what the engine says of its own interval."""
        gauges = self._gauges
        # The gauge keeps its last value for ever: it is live only while requests run.
        if gauges is not None and gauges.accept_length and gauges.running and not self.missing:
            return gauges.accept_length, (), "gauge", now - self._gauges_at
        if self._accept_line is not None:
            read_at, line = self._accept_line
            if now - read_at <= LINE_FRESH_S and line.accept_length is not None:
                return line.accept_length, line.per_position, "log line", now - read_at
        return None

    def _tok_s(self, now: float) -> float | None:
        if self._gauges is not None and self._gauges.tok_s is not None:
            return self._gauges.tok_s
        delta = self._window.delta(SHORT_WINDOW_S, now)
        return delta.rate(_TOKENS) if delta else None

    def _deltas(self, now: float, since: str) -> Iterator[tuple[str, CounterDelta]]:
        spans = (
            (f"{SHORT_WINDOW_S:g} s", self._window.delta(SHORT_WINDOW_S, now)),
            (f"{SHOWN_WINDOW_S:g} s", self._window.delta(SHOWN_WINDOW_S, now)),
            (since, self._window.total()),
        )
        return ((label, delta) for label, delta in spans if delta is not None)

    def _windows(self, now: float, since: str) -> Iterator[AcceptanceWindow]:
        for label, delta in self._deltas(now, since):
            counts = _accept(delta)
            if counts is not None and counts.accept_length is not None:
                yield AcceptanceWindow(
                    label=label,
                    span_s=delta.elapsed_s,
                    accept_length=counts.accept_length,
                    per_position=counts.survival,
                    steps=counts.steps,
                )

    def _counters(self, gauges: Gauges) -> dict[str, float]:
        counters: dict[str, float] = {}
        accept = gauges.accept
        if gauges.generation_tokens is not None:
            counters[_TOKENS] = gauges.generation_tokens
            if accept is None and self._ceiling is not None:
                # No step was counted yet: what follows is not to be lost as a first sight.
                accept = AcceptCounts(steps=0, accepted=int(gauges.generation_tokens))
        if accept is not None:
            counters[_STEPS] = accept.steps
            counters[_ACCEPTED] = accept.accepted
            if accept.proposed is not None:
                counters[_PROPOSED] = accept.proposed
            for i, count in enumerate(accept.per_position):
                counters[f"{_POSITION}{i}"] = count
        return counters


def _is_collapsed(accept_length: float | None, steps: int) -> bool:
    return (
        accept_length is not None and accept_length < COLLAPSED_BELOW and steps >= COLLAPSED_STEPS
    )


def _accept(delta: CounterDelta | None) -> AcceptCounts | None:
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
