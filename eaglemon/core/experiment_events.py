"""What happens to an experiment, and what its machine wants done about it."""

from dataclasses import dataclass
from typing import TypeAlias

from eaglemon.core.experiment import Leg


@dataclass(frozen=True, slots=True)
class Begun:
    """The experiment begins, or a later console goes on with it."""


@dataclass(frozen=True, slots=True)
class RoomMade:
    """Nothing is left in the way of an arm; ``stopped`` are the servers that had to go."""

    stopped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoomRefused:
    """What is in the way could not be stopped."""

    reason: str


@dataclass(frozen=True, slots=True)
class ServerUp:
    """The server of the present arm generates tokens."""

    server_id: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The server of the present arm did not come up; what was left of it is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The present leg is done and stored, ``elapsed_s`` after the start."""

    elapsed_s: float


@dataclass(frozen=True, slots=True)
class MeasureFailed:
    """The present arm gave nothing to measure."""

    reason: str


@dataclass(frozen=True, slots=True)
class HostAway:
    """The host of the present arm cannot be reached."""

    reason: str


@dataclass(frozen=True, slots=True)
class HostBack:
    """The host answers again."""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The intervals so far were computed; ``narrow`` by the stop rule.

    ``hopeless`` are arms that need no further measurement, with the reason.
    """

    narrow: bool
    hopeless: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The operator wants to end it now."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The servers of the experiment are gone."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What ran before was started again, or cannot be."""


Event: TypeAlias = (
    Begun
    | RoomMade
    | RoomRefused
    | ServerUp
    | StartFailed
    | Measured
    | MeasureFailed
    | HostAway
    | HostBack
    | LookedAt
    | CancelAsked
    | Cleared
    | Restored
)


@dataclass(frozen=True, slots=True)
class FindServer:
    """Look for the arm's server among those running; make room for it where there is none."""

    arm: int


@dataclass(frozen=True, slots=True)
class StartServer:
    """Launch the arm's server and wait until it generates."""

    arm: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Probe the arm's server and store what was seen."""

    leg: Leg
    server_id: str


@dataclass(frozen=True, slots=True)
class AwaitHost:
    """Wait until the arm's host answers."""

    arm: int


@dataclass(frozen=True, slots=True)
class NoteFailure:
    """Store that an arm failed, with its diagnosis."""

    arm: int
    reason: str


@dataclass(frozen=True, slots=True)
class NoteGivenUp:
    """Store that an arm is measured no further although it works, with the reason."""

    arm: int
    reason: str


@dataclass(frozen=True, slots=True)
class Look:
    """Compute the intervals so far."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Stop every server that the experiment started."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Start again what had to make room."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The end; ``outcome`` is ``done``, ``narrow``, ``time-up``, ``cancelled`` or ``failed``."""

    outcome: str


Command: TypeAlias = (
    FindServer
    | StartServer
    | Measure
    | AwaitHost
    | NoteFailure
    | NoteGivenUp
    | Look
    | Clear
    | Restore
    | Finish
)
