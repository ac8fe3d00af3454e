"""Slow or stalled? What counts as movement of a start, and how long each phase may rest."""

from collections.abc import Mapping
from typing import Final

from eaglemon.core.phases import Phase
from eaglemon.core.runs import RunActivity

STALL_LIMITS: Final[Mapping[Phase, float]] = {
    Phase.SPAWN: 30.0,
    Phase.IMPORT: 120.0,
    Phase.DISTRIBUTED_INIT: 90.0,
    Phase.LOAD_TARGET: 120.0,
    Phase.LOAD_DRAFT: 120.0,
    Phase.KV_CACHE: 180.0,
    # Ranks wait for one another behind the lock of a compiler that works elsewhere.
    Phase.GRAPH_CAPTURE: 300.0,
    Phase.HTTP_OPEN: 60.0,
    Phase.WARM_UP: 180.0,
}
"""Seconds in which something moves even in a slow start."""
_OTHER_S = 120.0
WINDOW_S = 10.0
"""Movement is looked for in steps no longer than this."""
_CPU_SHARE = 0.05
"""Of one core: less is the heartbeat of threads that wait."""
_CPU_LEAST_S = 0.02
_READ_LEAST_BYTES = 65536


def stall_limit(phase: Phase, own: Mapping[str, float]) -> float:
    """Return the limit of a phase in seconds; ``own`` are a profile's, by slug."""
    return own.get(phase.value, STALL_LIMITS.get(phase, _OTHER_S))


def has_moved(before: RunActivity, after: RunActivity, elapsed_s: float) -> bool:
    """Tell whether the run did anything in ``elapsed_s`` seconds: log, disk or CPU."""
    if reads_or_writes(before, after):
        return True
    worked_s = after.cpu_s - before.cpu_s
    return worked_s >= max(_CPU_LEAST_S, _CPU_SHARE * elapsed_s)


def reads_or_writes(before: RunActivity, after: RunActivity) -> bool:
    """Tell whether the log grew or files were read: a core may also spin in a deadlock."""
    if after.log_bytes != before.log_bytes:
        return True
    if after.read_bytes is None or before.read_bytes is None:
        return False
    return after.read_bytes - before.read_bytes >= _READ_LEAST_BYTES
