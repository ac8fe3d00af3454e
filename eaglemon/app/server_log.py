"""What a server's log has told: phases, faults, notes and periodic figures."""

from collections.abc import Callable
from contextlib import aclosing

from eaglemon.app.meter import Meter
from eaglemon.core.diagnosis import FaultFold
from eaglemon.core.lifecycle import ServerMachine
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
from eaglemon.errors import AgentError, LinkLostError
from eaglemon.io.clock import Clock
from eaglemon.io.host_link import HostLink

KEPT_NOTES = 20
RETRY_S = 1.0
UNREADABLE = frozenset({"log-missing", "log-unreadable"})
"""Kinds of ``AgentError`` for a log that cannot be read as it is now."""


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
        self.knows_ready = False
        """When it was ready is known: it was seen before that, or a line of the past tells."""
        self._offset = 0
        self._launched_at: float | None = None
        self._stamps: StampClock | None = None
        self._stamped_s = 0.0
        """Seconds from the launch to the last stamp: when a line without one was written."""
        self._history_bytes = 0
        self._trouble = ""
        self._waiting: list[Callable[[], None]] = []
        """What came while the past was still being read: it counts after that."""

    @property
    def tells_phases(self) -> bool:
        """Whether the log has named a phase that only it can name."""
        return self.track.current not in {Phase.SPAWN, Phase.IMPORT}

    @property
    def caught_up(self) -> bool:
        """Whether all that was written before we looked has been read."""
        return self._offset >= self._history_bytes

    def catch_up(
        self, *, launched_at: float, age_s: float, history_bytes: int, spawned: bool
    ) -> None:
        """Prepare for a log whose first ``history_bytes`` were written before we looked.

        There the engine's own stamps give the times. ``launched_at`` is unix seconds of the host;
        a process that was ``spawned`` counts as importing from then on.
        """
        self._launched_at = self._clock.monotonic() - age_s
        self.track = StartupTrack(self._launched_at)
        if spawned:
            self.track.enter(Phase.IMPORT, self._launched_at)
        self._stamps = StampClock(launched_at)
        self._history_bytes = history_bytes

    def launched(self, wall: float) -> None:
        """Count from unix ``wall`` on, when the host ran the server's first process."""
        self.knows_ready = True
        ago_s = max(0.0, self._clock.wall() - wall)
        self.track = StartupTrack(self._clock.monotonic() - ago_s)

    def enter(self, phase: Phase) -> None:
        """Begin a phase that shows now, and not in the log."""
        now = self._clock.monotonic()
        self._after_the_past(lambda: self.track.enter(phase, now))

    def finish(self) -> None:
        """Take note that the start-up is done."""
        now = self._clock.monotonic()
        self._after_the_past(lambda: self.track.finish(now))

    def fail(self, wall: float | None) -> None:
        """Take note that the start-up ended at unix ``wall``, now where that is not known."""
        at = self._at(wall)
        self._after_the_past(lambda: self.track.fail(at))

    def stop(self, wall: float | None) -> None:
        """Take note that the server was stopped at unix ``wall``, now where that is not known."""
        at = self._at(wall)
        self._after_the_past(lambda: self.track.stop(at))

    def _at(self, wall: float | None) -> float:
        ago_s = 0.0 if wall is None else max(0.0, self._clock.wall() - wall)
        return self._clock.monotonic() - ago_s

    async def follow(
        self, link: HostLink, run_id: str, machine: ServerMachine | None = None
    ) -> None:
        """Read from where we stopped until the run has ended or the link breaks.

        A log that cannot be read is noted, and tried again until the ``machine`` has ended.
        """
        while not self.ended:
            try:
                await self._follow(link, run_id)
            except LinkLostError:
                return
            except AgentError as error:
                self._past_is_read()
                if error.kind not in UNREADABLE:
                    raise
                self._note_trouble(str(error))
                self.ended = machine is None or machine.state.ended
                self._heard([])
                if not self.ended:
                    await self._clock.sleep(RETRY_S)
            except Exception:
                self._past_is_read()  # Nobody may wait for what is never read.
                raise
            else:
                break
        self._past_is_read()  # The log has ended, perhaps shorter than was told.

    def _note_trouble(self, text: str) -> None:
        """Note why the log cannot be read now; ``""``: it can."""
        if self._trouble in self.notes:
            self.notes.remove(self._trouble)
        self._trouble = text
        if text:
            self.notes.append(text)

    async def _follow(self, link: HostLink, run_id: str) -> None:
        async with aclosing(link.follow_log(run_id, offset=self._offset)) as chunks:
            async for chunk in chunks:
                self._note_trouble("")
                if chunk.restarted:
                    self._reader = LogReader(self._rules)
                events = self._reader.feed(chunk.data)
                if chunk.ended:
                    events += self._reader.close()
                    self.ended = True
                self._offset = chunk.offset + len(chunk.data)
                # One that reaches into the present has its stamps as well.
                self._take(events, old=chunk.offset < self._history_bytes)
                self._let_pass()

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
                case PhaseEntered() if old:
                    self.track.apply(event, now, stamp_s=self._written_s(event.stamp))
                case _ if old:
                    self.track.apply(event, now, stamp_s=self._written_s(None))
                case _:
                    self.track.apply(event, now)
        if events or self.ended:
            self._heard(events)

    def _written_s(self, stamp: str | None) -> float | None:
        """Return when a line of the past was written, in seconds since the launch."""
        if self._stamps is None:
            return None
        seconds = self._stamps.seconds(stamp)
        if seconds is not None:
            self._stamped_s = seconds
        return self._stamped_s

    def _was_ready(self, event: LogReady) -> None:
        ready_s = self._written_s(event.stamp)
        if ready_s and self._launched_at is not None:
            self.knows_ready = True
            self.track.enter(Phase.READY, self._launched_at + ready_s)
            self.track.finish(self._launched_at + ready_s)

    def _after_the_past(self, deed: Callable[[], None]) -> None:
        self._waiting.append(deed)
        self._let_pass()

    def _past_is_read(self) -> None:
        self._history_bytes = 0
        self._let_pass()

    def _let_pass(self) -> None:
        while self._waiting and self.caught_up:
            self._waiting.pop(0)()
