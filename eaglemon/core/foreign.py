"""Servers that somebody started by hand: found on a host, never touched unasked."""

from dataclasses import dataclass

from eaglemon.core.profiles import Profile
from eaglemon.core.units import memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignServer:
    """A running server that no console started."""

    host: str
    pid: int
    start_ticks: int
    """With the pid it names one process of this boot for good."""
    user: str
    profile: Profile
    """What its command line amounts to."""
    command_line: str
    """Secrets masked."""
    started_at: float
    """Unix seconds of the host."""
    container: str | None = None
    """Its name, or its short id where the engine may not be asked."""
    container_pid: int | None = None
    """The pid as the container counts."""
    pids: tuple[int, ...] = ()
    """The process and all that belong to it."""
    memory_used_bytes: int | None = None
    gpu_indexes: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """``PID@HOST``: what commands call it."""
        return f"{self.pid}@{self.host}"

    @property
    def url(self) -> str:
        """Where it answers, as seen from its host."""
        address = self.profile.address
        local = address if address not in {"0.0.0.0", "::", ""} else "127.0.0.1"  # noqa: S104
        return f"http://{local}:{self.profile.port}"

    def __str__(self) -> str:
        held = memory(self.memory_used_bytes)
        where = f" in container {self.container}" if self.container else ""
        if where and self.container_pid is not None:
            where += f" (PID {self.container_pid} there)"
        return (
            f"{self.id}: {self.profile.engine} of {self.user}{where}, "
            f"{self.profile.model} at {self.url}, {held} of GPU memory"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignStop:
    """How the stop of a foreign server went."""

    server: ForeignServer
    steps: tuple[str, ...] = ()
    left: tuple[int, ...] = ()
    memory_back: bool = False
    memory_unseen: str = ""
    """Why it is not known whether its GPU memory is back; empty where it is."""

    @property
    def gone(self) -> bool:
        """No process of it is left."""
        return not self.left


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A server at an address that has generated a token."""

    url: str
    host: str
    engine: str
    model: str
    waited_s: float
    asked: int


def parse_foreign_id(text: str) -> tuple[int, str] | None:
    """Return pid and host of ``PID@HOST``, ``None`` for any other text."""
    pid, at, host = text.partition("@")
    return (int(pid), host) if at and host and pid.isdecimal() else None
