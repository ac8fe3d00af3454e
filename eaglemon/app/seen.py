"""What was seen of a server by other ways than its log and its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from eaglemon.core.hosts import GpuProcess
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.release import Release
from eaglemon.core.runs import RunActivity
from eaglemon.core.stall import WINDOW_S, has_moved, reads_or_writes
from eaglemon.core.views import HealthVerdict, HealthView

SILENT_S = 4.0
"""A command that only looks waits so long for a server that was asked how it is."""


@dataclass(slots=True)
class Seen:
    """What polls, samples and the host's account have shown of a server so far."""

    health: HealthView | None = None
    health_at: float = 0.0
    asked_at: float | None = None
    """When it was first asked how it is."""
    silent_since: float | None = None
    """When the first was asked of the polls that an open port has let run into their limit."""
    moved_at: float = 0.0
    """When CPU, disk reads or GPU memory of the run last moved."""
    worked_at: float = 0.0
    """When anything but the CPU last moved: a core also spins in a deadlock."""
    activity: RunActivity | None = None
    """The reading that the next ones are compared with."""
    activity_at: float = 0.0
    counters_moved_at: float | None = None
    """When the server's own counters last showed work."""
    memory_bytes: int | None = None
    held_uuids: set[str] = field(default_factory=set)
    pids_ever: set[int] = field(default_factory=set)
    """The driver may list a process for a moment after it has gone from ``/proc``."""
    probed: ProbeProgress | None = None
    """The last probe of this console that ran to its end."""
    release: Release | None = None
    stranger: str | None = None
    """Who has the port that this server wanted."""
    ended_wall: float | None = None
    broken: dict[str, str] = field(default_factory=dict)
    """Tasks that ended by a mistake of ours, and by which; what they watch is no longer told."""

    def is_silent(self, now: float) -> bool:
        """Tell at monotonic ``now`` whether it was first asked longer ago than one waits."""
        return self.asked_at is not None and now - self.asked_at > SILENT_S

    def note_health(self, view: HealthView, asked_at: float, now: float) -> float:
        """Keep a poll's answer; return for how long polls have run into their limit, in a row."""
        self.health, self.health_at = view, now
        if view.verdict is HealthVerdict.TIMED_OUT:
            self.silent_since = asked_at if self.silent_since is None else self.silent_since
        elif view.verdict is not HealthVerdict.UNKNOWN:  # which tells nothing of the server
            self.silent_since = None
        return now - self.silent_since if self.silent_since is not None else 0.0

    def note_holders(self, mine: Sequence[GpuProcess], now: float) -> None:
        """Keep the GPUs that processes of the run hold, and how much, as seen at ``now``."""
        self.held_uuids.update(process.gpu_uuid for process in mine)
        known = [one.memory_bytes for one in mine if one.memory_bytes is not None]
        memory = sum(known) if known else None
        if memory != self.memory_bytes:
            self.memory_bytes = memory
            self.moved_at = now

    def note_activity(self, after: RunActivity, now: float) -> None:
        """Compare a reading with an earlier one, and note at monotonic ``now`` what moved."""
        before, elapsed_s = self.activity, now - self.activity_at
        moved = before is None or has_moved(before, after, elapsed_s)
        if before is None or reads_or_writes(before, after):
            self.worked_at = now
        if moved:
            self.moved_at = now
        if moved or elapsed_s > WINDOW_S:
            self.activity, self.activity_at = after, now
