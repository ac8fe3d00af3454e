"""Start-up phases and what a server's log can say: the events that log rules give."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from eaglemon.core.speculation import AcceptCounts


class Phase(StrEnum):
    """The phases of a start-up, in the order in which they occur (not every engine has all)."""

    SPAWN = "spawn"
    IMPORT = "import"
    DISTRIBUTED_INIT = "distributed-init"
    LOAD_TARGET = "load-target"
    LOAD_DRAFT = "load-draft"
    KV_CACHE = "kv-cache"
    GRAPH_CAPTURE = "graph-capture"
    HTTP_OPEN = "http-open"
    WARM_UP = "warm-up"
    READY = "ready"
    SERVING = "serving"


PHASE_ORDER: tuple[Phase, ...] = tuple(Phase)

PHASE_TITLES: dict[Phase, str] = {
    Phase.SPAWN: "spawn",
    Phase.IMPORT: "import",
    Phase.DISTRIBUTED_INIT: "distributed",
    Phase.LOAD_TARGET: "target",
    Phase.LOAD_DRAFT: "draft",
    Phase.KV_CACHE: "KV cache",
    Phase.GRAPH_CAPTURE: "graphs",
    Phase.HTTP_OPEN: "HTTP",
    Phase.WARM_UP: "warm-up",
    Phase.READY: "token",
    Phase.SERVING: "serving",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEntered:
    """The log shows that a phase, or a stage of it such as ``target-verify``, began."""

    phase: Phase
    stage: str | None = None
    stamp: str | None = None
    """The engine's own time stamp of the line, as printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProgress:
    """A progress bar of the current phase moved: ``done`` of ``total`` shards or shapes."""

    phase: Phase
    done: int
    total: int
    stage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReady:
    """The engine says that it is ready; ready is claimed only after a generated token."""

    stamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSeen:
    """A line that names a cause of failure."""

    cause: str
    """A slug, e.g. ``kv-cache-no-memory``."""
    line: str
    line_number: int
    """1-based; a carriage-return progress bar counts as one line."""
    weight: int = 50
    """Roots outweigh echoes: the heaviest fault, and of equals the first, is the decisive one."""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStats:
    """Speculation and load figures of one periodic log line; ``None`` where it has none."""

    accept_length: float | None = None
    """Tokens per verify step, the bonus token included, over the line's own interval."""
    accept_rate: float | None = None
    per_position: tuple[float, ...] = ()
    """Survival: share of steps in which the first i+1 draft tokens were all accepted."""
    tok_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_used_fraction: float | None = None
    counts: AcceptCounts | None = None
    """What the line's interval counted, where it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSeen:
    """A line worth showing that is no failure (adjusted flags, layers taken, version)."""

    slug: str
    text: str


LogEvent: TypeAlias = PhaseEntered | PhaseProgress | LogReady | FaultSeen | DecodeStats | NoteSeen
