"""Asks one server how it is: health polls, the first token, and later a sign of life."""

import random
from typing import Protocol

from eaglemon.app.health import Listener, ask_health, ask_model, ask_token, listener_on
from eaglemon.app.host import Host
from eaglemon.app.identity import who_else
from eaglemon.app.meter import Meter
from eaglemon.app.seen import Seen
from eaglemon.app.server_log import ServerLog
from eaglemon.core import lifecycle_events as events
from eaglemon.core.phases import Phase
from eaglemon.core.profiles import Profile
from eaglemon.core.runs import RunRecord
from eaglemon.core.views import HealthVerdict, HealthView, ServerState
from eaglemon.engines.base import Engine
from eaglemon.errors import EaglemonError, HostError
from eaglemon.io.clock import Clock
from eaglemon.io.http import HttpClient

_JITTER = (0.85, 1.15)
"""Keeps many consoles from asking one starting server in step."""
_PULSE_PARTS = 4
"""A hang is told within so many parts of the limit: until asked, asked twice, and one to spare."""


class Watched(Protocol):
    """What is known of the server that is asked (``eaglemon.app.keeper.Keeper``)."""

    engine: Engine
    host: Host
    profile: Profile
    seen: Seen
    meter: Meter
    log: ServerLog
    model_name: str
    record: RunRecord | None

    @property
    def pids(self) -> frozenset[int]:
        """The living processes of the run."""
        ...

    @property
    def state(self) -> ServerState:
        """The state of its machine."""
        ...

    def http(self) -> HttpClient:
        """Return the client of this server; raises ``HostError`` while the host is not up."""
        ...

    def feed(self, event: events.Event) -> None:
        """Give the machine an event."""
        ...


class HealthWatch:
    """The questions to one server, and who answers them."""

    def __init__(self, server: Watched, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._polls = 0
        self._answered_by = Listener()

    async def poll(self, after_s: float) -> None:
        """Ask the health path after ``after_s`` and tell the machine."""
        server = self._server
        before = server.state
        if before is ServerState.STARTING:
            if not server.log.tells_phases:
                # A log that names no phase will not name the open port either.
                after_s = min(after_s, server.profile.limits.health_interval_s / 2)
            after_s *= random.uniform(*_JITTER)  # noqa: S311 -- no secret
        await self._clock.sleep(after_s)
        limits = server.profile.limits
        limit_s = limits.health_total_s
        if before in {ServerState.READY, ServerState.BUSY}:
            limit_s = min(limit_s, limits.hung_s / _PULSE_PARTS)
        started = self._clock.monotonic()
        if server.seen.asked_at is None:
            server.seen.asked_at = started
        code: int | None = None
        try:
            link = server.host.link
            verdict, code, detail = await ask_health(
                server.http(), server.engine, limits, limit_s=limit_s
            )
            if code is not None and not self._answered_by.ours:
                self._answered_by = await listener_on(
                    server.host.link, server.profile.port, server.pids
                )
                if self._answered_by.stranger is not None:
                    verdict, code = HealthVerdict.REFUSED, None
                    detail = self._answered_by.stranger
            if code is None and not server.host.is_still(link):
                verdict, detail = HealthVerdict.UNKNOWN, f"{server.host.spec.name} was lost"
            if verdict is HealthVerdict.TIMED_OUT and server.host.is_silent:
                verdict, detail = HealthVerdict.UNKNOWN, f"{server.host.spec.name} is silent"
        except HostError as error:
            verdict, detail = HealthVerdict.UNKNOWN, str(error)
        now = self._clock.monotonic()
        self._polls += 1
        view = HealthView(
            verdict=verdict,
            code=code,
            latency_s=now - started if code is not None else None,
            age_s=0.0,
            polls=self._polls,
            detail=detail,
        )
        silent_s = server.seen.note_health(view, started, now)
        if verdict is not HealthVerdict.OK:
            server.log.knows_ready = True
        if code is not None and server.state is ServerState.STARTING:
            server.log.enter(Phase.HTTP_OPEN)
        generated = server.engine.health_generates
        ready_once = server.log.track.ended
        server.feed(
            events.HealthSeen(
                verdict=verdict, generated=generated, ready_once=ready_once, silent_s=silent_s
            )
        )

    async def first_token(self, after_s: float) -> None:
        """Ask for one token after ``after_s`` and tell the machine."""
        await self._clock.sleep(after_s)
        server = self._server
        limits = server.profile.limits
        try:
            card = await ask_model(server.http(), server.engine, limits)
            if not self._answered_by.ours:
                # Nobody can see whose process listens, so what it says of itself decides.
                reason = await who_else(server, card)
                if reason is not None:
                    server.feed(events.TokenFailed(reason=reason))
                    return
            server.model_name = str(card.get("id") or server.model_name)
            await ask_token(
                server.http(), server.engine, server.model_name, limit_s=limits.first_token_s
            )
        except EaglemonError as error:
            server.log.knows_ready = True
            server.feed(events.TokenFailed(reason=error.message))
            return
        server.feed(events.TokenSeen())

    async def pulse(self) -> None:
        """Ask a quiet server for a token now and then, for ever: its health may not tell."""
        server = self._server
        part_s = server.profile.limits.hung_s / _PULSE_PARTS
        failures = 0
        while True:
            if not failures:
                await self._clock.sleep(part_s)
            moved_at = server.seen.counters_moved_at
            if moved_at is not None and self._clock.monotonic() - moved_at < part_s:
                failures = 0
                continue
            try:
                await ask_token(server.http(), server.engine, server.model_name, limit_s=part_s)
            except EaglemonError as error:
                # While the host is silent its servers are not judged.
                failures += not server.host.is_silent
                if failures > 1:
                    failures = 0
                    metrics = "no metrics" if server.meter.missing else "metrics answer"
                    reason = f"hung: {metrics}, generation does not ({error.message})"
                    server.feed(events.GenerationStuck(reason=reason))
            else:
                failures = 0
                server.feed(events.Generated())

    async def name_stranger(self) -> str | None:
        """Say who else has the port; raises ``HostError``."""
        server = self._server
        found = await listener_on(server.host.link, server.profile.port, server.pids)
        return found.stranger
