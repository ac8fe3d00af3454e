"""Earlier starts of a profile on a host: kept where the console is told to, used for time left."""

import logging
import statistics
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from eaglemon.core.eta import Times
from eaglemon.core.experiment_records import PhaseTime, Startup
from eaglemon.core.phases import Phase
from eaglemon.core.profiles import Profile
from eaglemon.core.views import PhaseView
from eaglemon.errors import EaglemonError

_log = logging.getLogger(__name__)

USED_STARTS = 12
"""Older starts tell of other drivers, caches and disks."""


class StartHistory(Protocol):
    """Where starts are kept (``eaglemon.io.store.Store``); raises ``EaglemonError`` subclasses."""

    async def startups(self, host: str, digest: str, limit: int = 20) -> list[Startup]:
        """Return the newest starts of a profile on a host first."""
        ...

    async def add_startup(self, startup: Startup) -> None:
        """Add the account of a start; a second one of the same server is left out."""
        ...


class MemoryHistory:
    """Keeps starts for as long as this console runs."""

    def __init__(self, *, kept: int = 200) -> None:
        self._starts: deque[Startup] = deque(maxlen=kept)

    async def startups(self, host: str, digest: str, limit: int = 20) -> list[Startup]:
        """Return the newest starts of a profile on a host first."""
        found = [s for s in self._starts if (s.host, s.digest) == (host, digest)]
        return found[::-1][:limit]

    async def add_startup(self, startup: Startup) -> None:
        """Add the account of a start; a second one of the same server is left out."""
        if all(known.server_id != startup.server_id for known in self._starts):
            self._starts.append(startup)


class PastStarts:
    """The earlier starts of one server's profile on its host; trouble with them is only logged."""

    def __init__(self, history: StartHistory, host: str, profile: Profile) -> None:
        self.times: tuple[Times, ...] = ()
        """How long the phases of earlier good starts took, newest first."""
        self.usual_s: float | None = None
        """Median seconds from launch to the first token of those starts."""
        self._history = history
        self._host = host
        self._profile = profile
        self._digest = profile.digest()

    async def recall(self) -> None:
        """Read them."""
        try:
            starts = await self._history.startups(self._host, self._digest, limit=2 * USED_STARTS)
        except EaglemonError as error:
            _log.warning("the time left of starts cannot be told: %s", error)
            return
        good = [start for start in starts if start.ready_s is not None][:USED_STARTS]
        self.times = tuple(_times(start.phases) for start in good)
        took = [start.ready_s for start in good if start.ready_s is not None]
        self.usual_s = statistics.median(took) if took else None

    async def remember(
        self, server_id: str, launched_at: float, phases: Sequence[PhaseView]
    ) -> None:
        """Add a start that has led to a token; ``launched_at`` is in unix seconds."""
        ready = next((view for view in phases if view.phase is Phase.READY), None)
        startup = Startup(
            server_id=server_id,
            host=self._host,
            profile=self._profile.name,
            digest=self._digest,
            engine=self._profile.engine,
            launched_at=launched_at,
            ready_s=ready.started_s if ready else None,
            phases=tuple(
                PhaseTime(
                    phase=view.phase.value, started_s=view.started_s, elapsed_s=view.elapsed_s
                )
                for view in phases
                if view.started_s is not None
            ),
        )
        if startup.ready_s is None:
            return
        try:
            await self._history.add_startup(startup)
        except EaglemonError as error:
            _log.warning("this start is not remembered: %s", error)


def _times(phases: tuple[PhaseTime, ...]) -> Times:
    known = set(Phase)
    return {
        Phase(time.phase): time.elapsed_s
        for time in phases
        if time.phase in known and time.elapsed_s is not None
    }
