"""What happens to a server (events) and what is to be done about it (commands)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from eaglemon.core.runs import RunExit, RunStop
from eaglemon.core.views import HealthVerdict


class Timer(StrEnum):
    """The timers a server can have; each at most once."""

    READY = "ready"
    RELEASE = "release"


# Events: what happened, in the past tense.


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAsked:
    """Someone wants this server started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightPassed:
    """Nothing stands against the launch, or it was forced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFailed:
    """Problems stand against the launch; nothing was started."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """The host runs the server's first process."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFailed:
    """The command could not be executed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSeen:
    """The host's own account of the run."""

    living: int
    """Processes of the run that are alive."""
    exit: RunExit | None = None
    stop: RunStop | None = None
    age_s: float = 0.0
    """Since the launch, as far as it counts against the limit for becoming ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMissing:
    """The host answers, and does not know the run: the launch never reached it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTaken:
    """The log says that the server could not bind its port; its processes may live on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSeen:
    """A health poll ended."""

    verdict: HealthVerdict
    generated: bool = True
    """A good answer proves that the server generates; not so with every engine."""
    ready_once: bool = False
    """The log of a server that this console found says that it had been ready."""
    silent_s: float = 0.0
    """For how long the open port has let every poll run into its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSeen:
    """The server generated a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFailed:
    """The server did not generate a token."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStuck:
    """A server that was ready did not generate although it was asked twice."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A server that was ready generated when it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersMoved:
    """The server's counters show work between two readings: proof of life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Someone wants this server stopped."""

    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFailed:
    """The host could not carry the stop out."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBack:
    """The GPUs of the run are back at their level before the launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUnseen:
    """It cannot be seen whether the run holds GPU memory, and was not before either."""

    reason: str
    no_driver: bool = False
    """There is no driver that could ever tell, so nothing is left to wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLost:
    """The connection to the host broke."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer set by the machine ran out."""

    timer: Timer


Event: TypeAlias = (
    LaunchAsked
    | PreflightPassed
    | PreflightFailed
    | Spawned
    | SpawnFailed
    | StatusSeen
    | RunMissing
    | PortTaken
    | HealthSeen
    | TokenSeen
    | TokenFailed
    | GenerationStuck
    | Generated
    | CountersMoved
    | StopAsked
    | StopFailed
    | MemoryBack
    | MemoryUnseen
    | LinkLost
    | TimerFired
)


# Commands: what the runner shall do, in the imperative.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPreflight:
    """Check flags, port, GPUs and paths; answer ``PreflightPassed`` or ``PreflightFailed``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Start the run on the host; answer ``Spawned`` or ``SpawnFailed``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollHealth:
    """Ask the health path after ``after_s``; answer ``HealthSeen``. Replaces an earlier poll."""

    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToken:
    """Ask for one generated token after ``after_s``; answer ``TokenSeen`` or ``TokenFailed``."""

    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """Have the host stop the run; its account comes as ``StatusSeen``."""

    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchMemory:
    """Watch the GPUs of the run; answer ``MemoryBack`` when they are back, or ``MemoryUnseen``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Fire ``TimerFired`` after ``after_s``, in place of an earlier one of this name."""

    timer: Timer
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearTimer:
    """Forget a timer."""

    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPolling:
    """Cancel health polls and token requests under way."""


Command: TypeAlias = (
    RunPreflight
    | Spawn
    | PollHealth
    | AskToken
    | StopRun
    | WatchMemory
    | SetTimer
    | ClearTimer
    | StopPolling
)
