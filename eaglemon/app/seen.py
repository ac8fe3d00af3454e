"""What was seen of a server by other ways than its log and its metrics."""

from dataclasses import dataclass, field

from eaglemon.core.release import Release
from eaglemon.core.runs import RunActivity
from eaglemon.core.views import HealthView


@dataclass(slots=True)
class Seen:
    """What polls, samples and the host's account have shown of a server so far."""

    health: HealthView | None = None
    health_at: float = 0.0
    moved_at: float = 0.0
    """When CPU, disk reads or GPU memory of the run last moved."""
    activity: RunActivity | None = None
    memory_bytes: int | None = None
    held_uuids: set[str] = field(default_factory=set)
    pids_ever: set[int] = field(default_factory=set)
    """The driver may list a process for a moment after it has gone from ``/proc``."""
    release: Release | None = None
    stranger: str | None = None
    """Who has the port that this server wanted."""
    ended_wall: float | None = None
