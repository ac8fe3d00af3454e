"""The start-up track: events and times in, the phases with their times out."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from eaglemon.core.phases import PHASE_ORDER, LogEvent, Phase, PhaseEntered, PhaseProgress
from eaglemon.core.views import PhaseState, PhaseView, StageView

_STAMP = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_ZONE_STEP_S = 900
_YEAR_S = 366 * 86400


@dataclass(slots=True, kw_only=True)
class _Stage:
    name: str
    started_at: float
    ended_at: float | None = None
    done: int | None = None
    total: int | None = None


@dataclass(slots=True, kw_only=True)
class _Entry:
    started_at: float
    ended_at: float | None = None
    done: int | None = None
    total: int | None = None
    stages: list[_Stage] = field(default_factory=list)

    def end(self, at: float) -> None:
        if self.ended_at is None:
            self.ended_at = max(at, self.started_at)
            self.end_stage(at)

    def end_stage(self, at: float) -> None:
        if self.stages and self.stages[-1].ended_at is None:
            self.stages[-1].ended_at = max(at, self.stages[-1].started_at)


class StartupTrack:
    """Folds what is seen of a start-up; phases only go forward.

    Phases that come before the current one and were never seen are skipped. Should one of them
    show after all (some engines load the draft after the target's graphs), it gets its own
    time while the current phase stays.
    Times are unix seconds of one clock, whichever the caller uses.
    """

    def __init__(self, launched_at: float) -> None:
        self._launched_at = launched_at
        self._entries: dict[Phase, _Entry] = {Phase.SPAWN: _Entry(started_at=launched_at)}
        self._current = Phase.SPAWN
        self._late: Phase | None = None
        self._end: PhaseState | None = None
        self._last_progress_at = launched_at

    @property
    def current(self) -> Phase:
        """The furthest phase reached."""
        return self._current

    @property
    def current_stage(self) -> str | None:
        """The stage of the current phase, such as ``target-verify``."""
        stages = self._entries[self._current].stages
        return stages[-1].name if stages and stages[-1].ended_at is None else None

    @property
    def progress(self) -> tuple[int, int] | None:
        """``(done, total)`` of the current phase or stage, where the engine tells."""
        entry = self._entries[self._late or self._current]
        if entry.done is None or entry.total is None:
            return None
        return entry.done, entry.total

    @property
    def last_progress_at(self) -> float:
        """When anything moved last."""
        return self._last_progress_at

    @property
    def ended(self) -> bool:
        """``fail`` or ``finish`` was called."""
        return self._end is not None

    def apply(self, event: LogEvent, at: float, *, stamp_s: float | None = None) -> None:
        """Take an event of the log that arrived at ``at``.

        ``stamp_s`` replaces the time by one in seconds since the launch: for a log that is read
        long after it was written (see ``StampClock``).
        """
        if stamp_s is not None:
            at = self._launched_at + stamp_s
        if isinstance(event, PhaseEntered) and self._end is PhaseState.FAILED:
            self._failed_in(event.phase)
        elif isinstance(event, PhaseEntered):
            self.enter(event.phase, at, stage=event.stage)
        elif isinstance(event, PhaseProgress):
            self._advance(event, at)

    def enter(self, phase: Phase, at: float, *, stage: str | None = None) -> None:
        """Begin ``phase``, or a stage of it; a phase that was seen before is left as it is."""
        if self.ended:
            return
        entry = self._entries.get(phase)
        if entry is None:
            entry = self._begin(phase, at)
        elif stage is None or phase is not self._current:
            return
        if stage is not None and stage not in [known.name for known in entry.stages]:
            entry.end_stage(at)
            entry.stages.append(_Stage(name=stage, started_at=at))
            entry.done = entry.total = None
            self._last_progress_at = at
        if phase is self._current:
            self._end_late(at)

    def fail(self, at: float) -> None:
        """The start-up ended in the current phase."""
        self._finish(PhaseState.FAILED, at)

    def finish(self, at: float) -> None:
        """Nothing more comes, and the current phase is done."""
        self._finish(PhaseState.DONE, at)

    def stop(self, at: float) -> None:
        """The server was stopped, in whatever phase it was."""
        self._finish(PhaseState.ENDED, at)

    def views(self, now: float) -> tuple[PhaseView, ...]:
        """Return all phases in order, with times in seconds since the launch."""
        return tuple(self._view(phase, now) for phase in PHASE_ORDER)

    def _begin(self, phase: Phase, at: float) -> _Entry:
        entry = self._entries[phase] = _Entry(started_at=at)
        self._last_progress_at = at
        self._end_late(at)
        if PHASE_ORDER.index(phase) > PHASE_ORDER.index(self._current):
            self._entries[self._current].end(at)
            self._current = phase
        else:
            self._late = phase
        return entry

    def _failed_in(self, phase: Phase) -> None:
        """Move the failure on: the last lines of a log may come after the end is known."""
        at = self._entries[self._current].ended_at
        if PHASE_ORDER.index(phase) > PHASE_ORDER.index(self._current) and at is not None:
            self._entries[phase] = _Entry(started_at=at, ended_at=at)
            self._current = phase

    def _end_late(self, at: float) -> None:
        if self._late is not None:
            self._entries[self._late].end(at)
            self._late = None

    def _advance(self, event: PhaseProgress, at: float) -> None:
        entry = self._entries.get(event.phase)
        if self.ended or entry is None or entry.ended_at is not None:
            return
        entry.done, entry.total = event.done, event.total
        if event.stage is not None:
            for stage in entry.stages:
                if stage.name == event.stage:
                    stage.done, stage.total = event.done, event.total
        self._last_progress_at = at

    def _finish(self, state: PhaseState, at: float) -> None:
        if self.ended:
            return
        self._end_late(at)
        self._entries[self._current].end(at)
        self._end = state

    def _view(self, phase: Phase, now: float) -> PhaseView:
        entry = self._entries.get(phase)
        if entry is None:
            passed = PHASE_ORDER.index(phase) < PHASE_ORDER.index(self._current)
            return PhaseView(
                phase=phase, state=PhaseState.SKIPPED if passed else PhaseState.PENDING
            )
        state = PhaseState.DONE
        if entry.ended_at is None:
            state = PhaseState.ACTIVE
        elif phase is self._current and self._end is not None:
            state = self._end
        return PhaseView(
            phase=phase,
            state=state,
            started_s=entry.started_at - self._launched_at,
            elapsed_s=_elapsed(entry.started_at, entry.ended_at, now),
            done=entry.done,
            total=entry.total,
            stages=tuple(
                StageView(
                    name=stage.name,
                    started_s=stage.started_at - self._launched_at,
                    elapsed_s=_elapsed(stage.started_at, stage.ended_at, now),
                    done=stage.done,
                    total=stage.total,
                )
                for stage in entry.stages
            ),
        )


class StampClock:
    """Turns the engines' time stamps into seconds since the launch.

    The stamps are local time of an unknown zone, whole seconds, some without a year. Zones
    differ by quarters of an hour, so the first stamp is taken to lie within 15 minutes after
    ``launched_at`` (unix seconds); without it, seconds count from the first stamp.
    """

    def __init__(self, launched_at: float | None = None) -> None:
        self._launched_at = launched_at
        self._zero: float | None = None

    def seconds(self, stamp: str | None) -> float | None:
        """Return the time of ``stamp``, ``None`` when it is no stamp."""
        at = parse_stamp(stamp) if stamp else None
        if at is None:
            return None
        if self._zero is None:
            self._zero = at - self._first_offset(at)
        seconds = at - self._zero
        if seconds < -_YEAR_S / 2:
            seconds += _YEAR_S
        return max(0.0, seconds)

    def _first_offset(self, at: float) -> float:
        if self._launched_at is None:
            return 0.0
        # A stamp is cut to whole seconds, so it may seem to come just before the launch.
        return max(0.0, (at - self._launched_at + 1.0) % _ZONE_STEP_S - 1.0)


def parse_stamp(text: str) -> float | None:
    """Return the seconds of a stamp on a scale of its own: only differences mean anything."""
    match = _STAMP.search(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction = match.groups()
    micros = int((fraction or "0").ljust(6, "0"))
    try:
        moment = datetime(
            int(year or 2000),
            int(month),
            int(day),
            int(hour),
            int(minute),
            int(second),
            micros,
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return moment.timestamp()


def _elapsed(started_at: float, ended_at: float | None, now: float) -> float:
    return max(0.0, (now if ended_at is None else ended_at) - started_at)
