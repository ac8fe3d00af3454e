"""Diagnosis of a log: how far it got, whether it failed, and the line that says why.

The live path and ``eaglemon diagnose`` share it: ``FaultFold`` folds the events of a log that
is still being written, ``diagnose`` takes a whole one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from eaglemon.core.logs import LogReader, LogRule
from eaglemon.core.phases import (
    DecodeStats,
    FaultSeen,
    LogEvent,
    LogReady,
    NoteSeen,
    Phase,
    PhaseEntered,
)
from eaglemon.core.startup import StampClock, StartupTrack
from eaglemon.core.views import PhaseState, PhaseView

GENERIC_CAUSE = "exception"
"""Cause of a fault that no rule knows: only its exception line is known."""
ECHO_CAUSE = "echo"
"""Cause of a line that proves a failure and says nothing of why."""
REQUESTS_CUT = "requests-cut"
"""Slug of the note by which an engine says that it is stopped with requests in flight."""

_ROOT_WEIGHT = 30
_EARLY_ONLY_WEIGHT = 20
_HANGS = frozenset({"worker-not-responding"})
_WAITS = frozenset({"not-enough-gpus", "jit-lock-wait", "nccl-hang"})
_FROM_OUTSIDE = frozenset({"terminated-by-signal"})
_CHUNK_BYTES = 1 << 20


class Outcome(StrEnum):
    """What a log comes to."""

    STARTING = "starting"
    """It ends during the start-up, without a sign of failure."""
    READY = "ready"
    FAILED = "failed"
    """Never ready, even if the process lives."""
    CRASHED = "crashed"
    """Failed after it was ready."""
    HUNG = "hung"
    STALLED = "stalled"
    STOPPED = "stopped"
    """Ended from outside."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What a log says."""

    engine: str
    outcome: Outcome
    phase: Phase
    """The furthest phase reached."""
    stage: str | None = None
    timeline: tuple[PhaseView, ...] = ()
    """The phases that occurred; seconds since the first time stamp of the log."""
    cause: str | None = None
    """A slug; ``None`` where all is well or the stop was orderly, and where only an exception
    line is known."""
    decisive_line: str | None = None
    line_number: int | None = None
    remedy: str = ""
    accept_length: float | None = None
    """Mean over the periodic lines, each weighted alike: their intervals are alike in steps."""
    decode_lines: int = 0
    notes: tuple[NoteSeen, ...] = field(default=())


class FaultFold:
    """Folds the faults of a log into the one that decides.

    The heaviest fault wins, of equals the first. What was said before the engine became ready
    did not stop it and is forgotten; an exception that no rule knows counts less once a later
    phase began; whatever comes after a stop from outside is its consequence.
    """

    def __init__(self) -> None:
        self.ready = False
        """The engine said that it is ready, or it decodes."""
        self.requests_cut = False
        """It was stopped from outside while requests were in flight."""
        self.failed = False
        """Something proves a failure, though it may not name the cause."""
        self._best: FaultSeen | None = None
        self._stale: FaultSeen | None = None

    @property
    def best(self) -> FaultSeen | None:
        """The decisive fault so far; its cause may be ``GENERIC_CAUSE``."""
        return self._best or self._stale

    @property
    def stale(self) -> FaultSeen | None:
        """An exception that no rule knows, after which a later phase began all the same."""
        return self._stale

    def apply(self, event: LogEvent) -> None:
        """Take the next event of the log."""
        if isinstance(event, FaultSeen):
            self._take(event)
        elif isinstance(event, LogReady | DecodeStats):
            self._became_ready()
        elif isinstance(event, PhaseEntered):
            self.ready = self.ready or event.phase is Phase.SERVING
            if self._best is not None and self._best.cause == GENERIC_CAUSE:
                self._stale = self._stale or self._best
                self._best = None
        elif isinstance(event, NoteSeen) and event.slug == REQUESTS_CUT:
            self.requests_cut = True

    @property
    def _stopped(self) -> bool:
        return self._best is not None and self._best.cause in _FROM_OUTSIDE

    def _became_ready(self) -> None:
        if not self.ready and not self._stopped:
            self.failed = False
            self._best = self._stale = None
        self.ready = True

    def _take(self, fault: FaultSeen) -> None:
        # A failing engine stops itself the way it is stopped from outside.
        if self._stopped or (fault.cause in _FROM_OUTSIDE and self.failed):
            return
        if fault.cause == ECHO_CAUSE:
            self.failed = True
            return
        if self.ready and fault.weight <= _EARLY_ONLY_WEIGHT and fault.cause != GENERIC_CAUSE:
            return
        if self._best is None or fault.weight > self._best.weight:
            self._best = fault


def diagnose(
    data: bytes, *, engine: str, rules: Sequence[LogRule], launched_at: float | None = None
) -> Diagnosis:
    """Read a whole log of ``engine`` by its rules.

    ``launched_at`` (unix seconds) makes the timeline count from the launch.
    """
    reader = LogReader(rules)
    events: list[LogEvent] = []
    for start in range(0, len(data), _CHUNK_BYTES):
        events.extend(reader.feed(data[start : start + _CHUNK_BYTES]))
    events.extend(reader.close())
    fold = FaultFold()
    clock = StampClock(launched_at)
    track = StartupTrack(0.0)
    lengths: list[float] = []
    notes: dict[str, NoteSeen] = {}
    at = 0.0
    for event in events:
        fold.apply(event)
        at = _time_of(event, clock, at)
        track.apply(event, at)
        if isinstance(event, LogReady):
            track.enter(Phase.READY, at)
        elif isinstance(event, DecodeStats):
            track.enter(Phase.SERVING, at)
            if event.accept_length is not None:
                lengths.append(event.accept_length)
        elif isinstance(event, NoteSeen):
            notes.setdefault(event.slug, event)
    outcome = outcome_of(fold, started=bool(data.strip()))
    orderly = outcome is Outcome.STOPPED and fold.ready and not fold.requests_cut
    decisive = None if orderly or outcome in _FINE else fold.best
    if outcome is Outcome.FAILED:
        track.fail(at)
    return Diagnosis(
        engine=engine,
        outcome=outcome,
        phase=track.current,
        stage=track.current_stage,
        timeline=tuple(
            view
            for view in track.views(at)
            if view.state not in {PhaseState.PENDING, PhaseState.SKIPPED}
            and view.phase is not Phase.SPAWN
        ),
        cause=decisive.cause if decisive and decisive.cause != GENERIC_CAUSE else None,
        decisive_line=decisive.line if decisive else None,
        line_number=decisive.line_number if decisive else None,
        remedy=decisive.remedy if decisive else "",
        accept_length=sum(lengths) / len(lengths) if lengths else None,
        decode_lines=len(lengths),
        notes=tuple(notes.values()),
    )


_FINE = frozenset({Outcome.STARTING, Outcome.READY, Outcome.UNKNOWN})


def outcome_of(fold: FaultFold, *, started: bool) -> Outcome:
    """Return what the log comes to, when nothing but the log is known."""
    best = fold.best
    cause = best.cause if best else None
    ended = Outcome.CRASHED if fold.ready else Outcome.FAILED
    for true, outcome in (
        (cause in _FROM_OUTSIDE, Outcome.STOPPED),
        (cause in _WAITS, Outcome.STALLED),
        (cause in _HANGS and not fold.failed, Outcome.HUNG),
        (fold.failed or (best is not None and best.weight >= _ROOT_WEIGHT), ended),
        (fold.ready, Outcome.READY),
        # An exception that no rule knows ended the start-up only if no later phase began.
        (best is not None and best is not fold.stale, Outcome.FAILED),
        (started, Outcome.STARTING),
    ):
        if true:
            return outcome
    return Outcome.UNKNOWN


def _time_of(event: LogEvent, clock: StampClock, last: float) -> float:
    if not isinstance(event, PhaseEntered | LogReady):
        return last
    seconds = clock.seconds(event.stamp)
    return last if seconds is None else max(last, seconds)
