"""What a host answers, whoever does it there: the agent, or plain sh where there is no python3."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from eaglemon.core.hosts import HostFacts, HostSample
from eaglemon.core.runs import DamagedRun, HostCheck, LogChunk, RunRecord, RunRequest, RunStatus
from eaglemon.errors import HostError

LOG_WINDOW_BYTES = 4 << 20
"""How much of a log is sent ahead of its reader."""
PROGRAM_WINDOW_BYTES = 8 << 20
"""The same for what a program tells: ample, for a load generator must never wait for its reader."""


class AgentNotStartedError(HostError):
    """The agent ended before it said hello."""


class NoPythonError(AgentNotStartedError):
    """The host has no Python that could run the agent; plain sh may still do."""


RunChanges = tuple[tuple[RunStatus, ...], tuple[str, ...]]
"""Runs that changed, and the ids of those whose folders are gone."""


@runtime_checkable
class TellsDamagedRuns(Protocol):
    """A link that tells the runs it had to leave out."""

    @property
    def damaged_runs(self) -> Mapping[str, DamagedRun]:
        """Runs whose records cannot be read, by id."""
        ...


@runtime_checkable
class TellsSilence(Protocol):
    """A link that tells when the file system of the run records does not answer."""

    @property
    def records_silent(self) -> str | None:
        """Which folder, and for how long."""
        ...


class HostLink(Protocol):
    """A conversation with one host; its methods are described at ``AgentLink``."""

    @property
    def facts(self) -> HostFacts:
        """What is known of the host, and what it cannot do (``limits``)."""
        ...

    async def ping(self) -> float:
        """Return the host's clock (unix seconds)."""
        ...

    def watch_gpus(
        self, *, interval_s: float = 1.0, processes_interval_s: float = 2.0
    ) -> AsyncGenerator[HostSample, None]:
        """Yield samples; a slow reader gets the latest only."""
        ...

    def watch_runs(self, *, interval_s: float = 0.2) -> AsyncGenerator[RunChanges, None]:
        """Yield all runs, then what changed."""
        ...

    async def start_run(self, request: RunRequest) -> RunRecord:
        """Start a server; returns once its process is known.

        After ``TimeLimitError``, or ``AgentError`` of kind ``spawn-late``, it may begin yet.
        """
        ...

    async def stop_run(self, run_id: str, *, grace_s: float) -> None:
        """Begin to stop a run."""
        ...

    async def forget_run(self, run_id: str) -> None:
        """Remove an ended run's folder."""
        ...

    def follow_log(
        self, run_id: str, *, offset: int = 0, ahead_bytes: int = LOG_WINDOW_BYTES
    ) -> AsyncGenerator[LogChunk, None]:
        """Yield the log's bytes from ``offset`` on."""
        ...

    async def log_tail(self, run_id: str, *, lines: int) -> int:
        """Return where the last ``lines`` lines of the log begin."""
        ...

    async def check_host(
        self,
        *,
        paths: Sequence[str] = (),
        port: int | None = None,
        argv: Sequence[str] = (),
        python: str | None = None,
        package: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> HostCheck:
        """Return what the host says of a launch's needs."""
        ...

    def run_program(
        self,
        source: bytes,
        *,
        argv: Sequence[str] = (),
        input: object = None,  # noqa: A002 -- as the protocol calls it
        python: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Mapping[str, object], None]:
        """Run Python source on the host and yield what it tells."""
        ...

    async def closed(self) -> str:
        """Wait until the link has ended and return why."""
        ...

    async def close(self) -> None:
        """End the link; servers keep running."""
        ...
