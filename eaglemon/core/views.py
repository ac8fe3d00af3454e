"""Views: the frozen values that drive a screen or a JSON document.

The app layer builds one ``Snapshot`` of everything; front ends only format it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

from eaglemon.core.gpu_history import GpuTrace
from eaglemon.core.hosts import HostFacts, HostSample, HostSpec, LinkState
from eaglemon.core.phases import Phase
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.profiles import Profile, Speculation
from eaglemon.core.runs import DamagedRun

Needs: TypeAlias = Literal["runs", "gpus", "servers"]
"""How much must be known of hosts, each with what comes before it: their runs, their GPUs, and of
each server whether it answers."""
Told: TypeAlias = Callable[[str], None] | None
"""Is told what goes on, in words."""


class ServerState(StrEnum):
    """State of a server's life (see ``core/lifecycle.py``)."""

    PREFLIGHT = "preflight"
    SPAWNING = "spawning"
    STARTING = "starting"
    WARMING = "warming"
    READY = "ready"
    BUSY = "busy"
    UNHEALTHY = "unhealthy"
    STOPPING = "stopping"
    RELEASING = "releasing"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"

    @property
    def ended(self) -> bool:
        """No process of the server is left and none will come."""
        return self in {ServerState.STOPPED, ServerState.FAILED}

    @property
    def starting(self) -> bool:
        """On the way to ready."""
        return self in {
            ServerState.PREFLIGHT,
            ServerState.SPAWNING,
            ServerState.STARTING,
            ServerState.WARMING,
        }

    @property
    def answering(self) -> bool:
        """Has generated a token and was not stopped since."""
        return self in {ServerState.READY, ServerState.BUSY}


class PhaseState(StrEnum):
    """State of one phase on the phase track."""

    PENDING = "pending"
    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Did not show in the log although a later phase did."""
    ENDED = "ended"
    """Was under way, as far as is known, when the server was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """A named part of a phase, such as one of the graph captures."""

    name: str
    started_s: float
    elapsed_s: float
    done: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseView:
    """One phase of a start-up; times are seconds since the launch."""

    phase: Phase
    state: PhaseState
    started_s: float | None = None
    elapsed_s: float | None = None
    done: int | None = None
    total: int | None = None
    stages: tuple[StageView, ...] = ()
    eta_s: tuple[float, float] | None = None
    """Seconds left of it, low and high; ``None`` where that cannot be told."""


class HealthVerdict(StrEnum):
    """What the last health poll proves."""

    UNKNOWN = "unknown"
    REFUSED = "refused"
    """Nothing listens yet."""
    STARTING = "starting"
    OK = "ok"
    BAD = "bad"
    TIMED_OUT = "timed-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """The last health poll."""

    verdict: HealthVerdict
    code: int | None = None
    latency_s: float | None = None
    age_s: float
    polls: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceWindow:
    """Acceptance of all requests over one span of time."""

    label: str
    """``5 s``, ``60 s``, ``since ready`` or ``since seen`` (the console came later)."""
    span_s: float
    """What it really covers."""
    accept_length: float
    per_position: tuple[float, ...] = ()
    steps: int
    """Verify steps behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceView:
    """Acceptance over the shown window."""

    accept_length: float | None
    ceiling: int | None = None
    per_position: tuple[float, ...] = ()
    window_s: float | None = None
    source: str
    """``counters``, ``gauge``, ``log line`` or ``nothing``."""
    age_s: float = 0.0
    conditional: tuple[float | None, ...] = ()
    """Share of draft token i+1 accepted given that all before it were."""
    collapsed: bool = False
    """About 1.0 over enough steps: the draft is of no use."""
    windows: tuple[AcceptanceWindow, ...] = ()
    """The spans that counters tell, shortest first."""
    hint: str = ""
    """What is missing to tell more, and how to turn it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadView:
    """What the server is doing; ``None`` where its metrics do not tell."""

    tok_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_used_fraction: float | None = None
    source: str
    age_s: float = 0.0
    tok_s_windows: tuple[tuple[str, float], ...] = ()
    """(label as of ``AcceptanceWindow``, tokens per second), shortest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitView:
    """How a process ended; both ``None`` when nobody saw it."""

    code: int | None = None
    signal: str | None = None
    at: float | None = None

    def __str__(self) -> str:
        """``exit code 1``, ``SIGKILL`` or ``exit code unknown``."""
        if self.signal:
            return self.signal
        return "exit code unknown" if self.code is None else f"exit code {self.code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseView:
    """Why a server failed."""

    slug: str | None
    sentence: str
    decisive_line: str | None = None
    line_number: int | None = None
    remedy: str = ""
    changes: tuple[str, ...] = ()
    """Settings that follow the remedy, as ``--set`` takes them; empty where none can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopView:
    """The account of a stop."""

    steps: tuple[str, ...]
    """In order, in words: ``TERM sent to 4 processes``, ``2 survivors killed after 15 s``."""
    processes_left: int | None = None
    memory_to_release_bytes: int | None = None
    elapsed_s: float = 0.0
    proven: bool = False
    """No process is left, and the GPU memory is back or there is no driver that could tell."""
    memory_unseen: str = ""
    """Why it is not known whether it held GPU memory; empty where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """One server."""

    id: str
    name: str
    host: str
    profile: str
    engine: str
    state: ServerState
    detail: str = ""
    """One line beside the state: phase and progress, cause, what is waited for."""
    stalled: bool = False
    command_line: str
    """As it was started, secrets masked."""
    port: int
    speculation: Speculation | None = None
    gpu_indexes: tuple[int, ...] = ()
    pid: int | None = None
    pids: tuple[int, ...] = ()
    memory_used_bytes: int | None = None
    """GPU memory held by the processes of the run."""
    launched_at: float
    """Unix seconds."""
    ready_at: float | None = None
    age_s: float
    """Seconds since the launch, until the end once ended."""
    phases: tuple[PhaseView, ...] = ()
    ready_eta_s: tuple[float, float] | None = None
    """Seconds until the first token, low and high, while starting; ``None`` until known."""
    eta_source: str = ""
    """``earlier starts`` or ``rate``."""
    usual_start_s: float | None = None
    """Median seconds to the first token of earlier starts of this profile on this host."""
    health: HealthView | None = None
    acceptance: AcceptanceView | None = None
    load: LoadView | None = None
    accept_history: tuple[tuple[float, float], ...] = ()
    """(unix seconds, accept length), oldest first."""
    tok_s_history: tuple[tuple[float, float], ...] = ()
    exit: ExitView | None = None
    cause: CauseView | None = None
    stop: StopView | None = None
    stop_grace_s: float | None = None
    """Seconds from TERM to KILL in a stop that names none; ``None`` where that is not known."""
    log_path: str = ""
    notes: tuple[str, ...] = ()
    probe: ProbeProgress | None = None
    """The last probe of this console."""
    measured: ProbeProgress | None = None
    """The last of them that ran to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """One host with its last sample."""

    spec: HostSpec
    state: LinkState
    detail: str = ""
    """Why it is down or degraded, with the next step."""
    facts: HostFacts | None = None
    sample: HostSample | None = None
    sample_age_s: float | None = None
    next_try_s: float | None = None
    """Seconds until the next attempt to connect, while it is down."""
    history: Mapping[str, GpuTrace] = field(default_factory=dict)
    """The last 15 minutes of its GPUs, by uuid."""
    damaged: tuple[DamagedRun, ...] = ()
    """Runs there whose records cannot be read, and which thus are no servers here."""
    untold: str = ""
    """Why its servers are not known although it is up; empty once it has told them."""
    hint: str = ""
    """The next step, where ``detail`` ends with one."""

    @property
    def name(self) -> str:
        """Name of the host."""
        return self.spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a screen shows, at one moment."""

    at: float
    """Unix seconds of this console's clock."""
    hosts: tuple[HostView, ...] = ()
    servers: tuple[ServerView, ...] = ()
    """All known runs, newest first."""

    def server(self, server_id: str) -> ServerView | None:
        """Return the server with this id."""
        return next((server for server in self.servers if server.id == server_id), None)

    def host(self, name: str) -> HostView | None:
        """Return the host with this name."""
        return next((host for host in self.hosts if host.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """Complete lines of a server's log, in order."""

    lines: tuple[str, ...]
    next_offset: int
    """Byte offset after the last of them: where to resume."""
    begin_offset: int | None = None
    """Where the first of them begins; ``None`` where the log is no file that can be read again."""
    restarted: bool = False
    """The log was truncated or replaced before them: what was read earlier is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """A launch, ready to be confirmed."""

    host: str
    profile: Profile
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    """Only what the profile sets, unmasked."""
    shell_line: str
    """What a person would type, secrets masked."""
