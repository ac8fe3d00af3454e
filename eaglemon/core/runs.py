"""Runs: what a host remembers of a server that eaglemon started there.

A run's folder ``<state dir>/runs/<id>/`` holds ``run.json`` (the record), ``server.log``,
``exit.json`` and ``stop.json``; docs/agent-protocol.md describes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A server to start."""

    id: str
    """``<profile>-<YYYYmmdd-HHMMSS>-<4 hex>``; a folder name, chosen by the console."""
    name: str
    profile: str
    digest: str
    """``Profile.digest()``: tells whether two runs were started the same way."""
    engine: str
    address: str
    port: int
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Full values for the process; never written to disk unmasked."""
    env_recorded: Mapping[str, str] = field(default_factory=dict)
    argv_recorded: tuple[str, ...] = ()
    """With secrets masked, as ``run.json`` keeps them."""
    workdir: str | None = None
    gpu_indexes: tuple[int, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    gpu_used_before_bytes: int | None = None
    """Used memory of these GPUs before the launch: what "the memory is back" is measured by."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Whatever the console wants back: speculation, limits, who launched it."""
    known_runs: tuple[str, ...] | None = None
    """Runs that the check of this launch knew. The host refuses it where another living one has
    its port or GPUs: it was launched meanwhile, from another console. ``None``: no such check."""
    force: bool = False
    """Share GPUs all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """``run.json``: the request without secrets, and the process."""

    id: str
    name: str
    profile: str
    digest: str
    engine: str
    address: str
    port: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str | None
    gpu_indexes: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    gpu_used_before_bytes: int | None
    extra: Mapping[str, object]
    launched_at: float
    """Unix seconds of the host."""
    boot_id: str
    log_path: str
    pid: int | None = None
    """The server's first process, leader of its own session and group; ``None`` until spawned."""
    start_ticks: int | None = None
    """Field 22 of ``/proc/<pid>/stat``: with pid and boot id it names one process for good."""
    spawn_error: str | None = None
    """Why the command could not be executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExit:
    """``exit.json``, or what the agent found when it was missing."""

    code: int | None = None
    signal: str | None = None
    at: float | None = None
    """Unix seconds of the host; ``None`` when nobody saw it end."""
    reason: str | None = None
    """``None`` when seen by the supervisor; else ``host rebooted``, ``supervisor gone``, or that
    how it ended cannot be written (a full disk)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStop:
    """``stop.json``: the account of a stop under way or done, written by the stopper."""

    requested_at: float
    grace_s: float
    term_sent_at: float | None = None
    term_count: int = 0
    kill_sent_at: float | None = None
    kill_count: int = 0
    gone_at: float | None = None
    """When no process of the run was left."""
    left: tuple[int, ...] = ()
    """PIDs that survived KILL (uninterruptible, or another user's)."""
    pids: tuple[int, ...] = ()
    """All that were signalled: some may have lived too shortly to be told as processes."""
    error: str | None = None


def all_gone(stop: RunStop | None) -> bool:
    """Tell whether a stop has left no process."""
    return stop is not None and stop.gone_at is not None


def was_stopped(exit_: RunExit | None, stop: RunStop | None) -> bool:
    """Tell whether the run ended because someone stopped it, not by itself before."""
    if stop is None:
        return False
    return exit_ is None or exit_.at is None or exit_.at >= stop.requested_at


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProcess:
    """A living process of a run."""

    pid: int
    start_ticks: int
    command: str
    state: str
    """The letter of ``/proc/<pid>/stat``: R, S, D, Z, T."""
    parent: int | None = None
    user: str | None = None
    container: str | None = None
    """Short id of the container that it runs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunActivity:
    """What moves while a server starts: tells slow from stalled."""

    cpu_s: float
    """CPU seconds used by all processes of the run together."""
    read_bytes: int | None = None
    log_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run as it stands now."""

    record: RunRecord
    processes: tuple[RunProcess, ...] = ()
    exit: RunExit | None = None
    stop: RunStop | None = None
    activity: RunActivity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRun:
    """A run whose record cannot be read: it may live, and nobody can tell."""

    id: str
    path: str
    """The record's file on its host."""
    reason: str

    def __str__(self) -> str:
        return (
            f"the record of {self.id} is damaged: {self.path}: {self.reason}; "
            "end its processes on the host, then remove its folder"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PortListener:
    """A process that listens on a TCP port; the pid is ``None`` where it cannot be seen."""

    address: str
    port: int
    pid: int | None = None
    user: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFact:
    """What a path is on the host."""

    path: str
    kind: str
    """``file``, ``folder``, ``missing``, ``other``, or ``silent``: its file system hangs."""
    readable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """Answers for the preflight of a launch."""

    paths: tuple[PathFact, ...] = ()
    listeners: tuple[PortListener, ...] = ()
    program: str | None = None
    """Absolute path of the command's first word; ``None`` when it is not found."""
    engine_version: str | None = None
    engine_error: str | None = None
    shm_free_bytes: int | None = None
    state_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """Raw bytes of a log, as they lie in the file from ``offset`` on."""

    offset: int
    data: bytes
    restarted: bool = False
    """The file was truncated or replaced: counting starts again at ``offset``."""
    ended: bool = False
    """The run has ended and this is the last of its log."""
