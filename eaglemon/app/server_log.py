"""What a server's log has told: phases, faults, notes and periodic figures."""

from collections.abc import Callable
from contextlib import aclosing, suppress

from eaglemon.app.meter import Meter
from eaglemon.core.diagnosis import FaultFold
from eaglemon.core.logs import LogReader, LogRule
from eaglemon.core.phases import (
    DecodeStats,
    LogEvent,
    LogReady,
    NoteSeen,
    Phase,
    PhaseEntered,
)
from eaglemon.core.startup import StampClock, StartupTrack
from eaglemon.errors import LinkLostError
from eaglemon.io.clock import Clock
from eaglemon.io.host_link import HostLink

KEPT_NOTES = 20


class ServerLog:
    """Reads one run's log from its first byte, over reconnects."""

    def __init__(
        self,
        rules: tuple[LogRule, ...],
        *,
        meter: Meter,
        clock: Clock,
        heard: Callable[[list[LogEvent]], None],
    ) -> None:
        self.faults = FaultFold()
        self.notes: list[str] = []
        self.track = StartupTrack(clock.monotonic())
        self.moved_at = clock.monotonic()
        """When the last bytes came."""
        self.ended = False
        """The run has ended and its last line was read."""
        self._rules = rules
        self._meter = meter
        self._clock = clock
        self._heard = heard
        self._reader = LogReader(rules)
        self._offset = 0
        self._launched_at: float | None = None
        self._stamps: StampClock | None = None
        self._history_bytes = 0

    @property
    def tells_phases(self) -> bool:
        """Whether the log has named a phase that only it can name."""
        return self.track.current not in {Phase.SPAWN, Phase.IMPORT}

    @property
    def caught_up(self) -> bool:
        """Whether all that was written before we looked has been read."""
        return self._offset >= self._history_bytes

    def catch_up(self, *, launched_at: float, age_s: float, history_bytes: int) -> None:
        """Prepare for a log whose first ``history_bytes`` were written before we looked.

        There the engine's own stamps give the times. ``launched_at`` is unix seconds of the host.
        """
        self.track = StartupTrack(self._clock.monotonic() - age_s)
        self._launched_at = self._clock.monotonic() - age_s
        self._stamps = StampClock(launched_at)
        self._history_bytes = history_bytes

    async def follow(self, link: HostLink, run_id: str) -> None:
        """Read from where we stopped until the run has ended or the link breaks."""
        with suppress(LinkLostError):
            async with aclosing(link.follow_log(run_id, offset=self._offset)) as chunks:
                async for chunk in chunks:
                    if chunk.restarted:
                        self._reader = LogReader(self._rules)
                    events = self._reader.feed(chunk.data)
                    if chunk.ended:
                        events += self._reader.close()
                        self.ended = True
                    self._offset = chunk.offset + len(chunk.data)
                    self._take(events, old=self._offset <= self._history_bytes)
            self._history_bytes = 0  # The log has ended, perhaps shorter than was told.

    def _take(self, events: list[LogEvent], *, old: bool) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        self.moved_at = now
        for event in events:
            self.faults.apply(event)
            match event:
                case NoteSeen():
                    self.notes.append(event.text)
                    del self.notes[:-KEPT_NOTES]
                case DecodeStats():
                    if not old:  # Figures of the past are not live.
                        self._meter.line_seen(event, at=now, wall=wall)
                case LogReady():
                    if old:
                        self._was_ready(event)
                case PhaseEntered() if old and self._stamps is not None:
                    self.track.apply(event, now, stamp_s=self._stamps.seconds(event.stamp))
                case _:
                    self.track.apply(event, now)
        if events or self.ended:
            self._heard(events)

    def _was_ready(self, event: LogReady) -> None:
        ready_s = self._stamps.seconds(event.stamp) if self._stamps else None
        if ready_s is not None and self._launched_at is not None:
            self.track.enter(Phase.READY, self._launched_at + ready_s)
            self.track.finish(self._launched_at + ready_s)
