"""Turns successive views of one server into lines for a log: one per step, none twice."""

import re

from eaglemon.core.phases import PHASE_TITLES
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.units import duration, duration_range, length, plural, rate
from eaglemon.core.views import PhaseState, PhaseView, ServerState, ServerView

_LONG_S = 5.0
"""A phase that takes longer is also told while it lasts."""
_AMOUNT = re.compile(r"\d[\d.]* \S+")
_OVER = frozenset({ServerState.STOPPING, ServerState.RELEASING, ServerState.STOPPED})
_PROBE_LINES = 10
"""A probe is told in about this many lines, whatever its number of requests."""


class _Elapsed:
    """Seconds since one moment, the launch or the stop, as they are told: they never run back.

    A phase may come to be known after a later one.
    """

    def __init__(self) -> None:
        self._last_s = 0.0

    def __call__(self, at_s: float) -> str:
        self._last_s = max(self._last_s, at_s)
        return _stamp(self._last_s)


class Progress:
    """Remembers what was told of a server; ``lines`` returns what is new."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._probe_told = -1
        self._launch, self._stop = _Elapsed(), _Elapsed()
        self._stop_began_s: float | None = None
        """The server's age when its stop was first seen."""
        self._stalled = False

    def lines(self, server: ServerView) -> list[str]:
        """Return the lines for what has changed since the last call."""
        if self._stop_began_s is None and server.state in _OVER:
            self._stop_began_s = server.age_s - (server.stop.elapsed_s or 0.0 if server.stop else 0)
        # A stop is no time to tell how its start went, although its host may be lost meanwhile.
        phases = () if self._stop_began_s is not None else server.phases
        found = [line for phase in phases for line in self._phase_lines(phase)]
        if server.stalled and not self._stalled:
            found.append(f"{self._launch(server.age_s)} stalled: {server.detail}")
        self._stalled = server.stalled
        found += self._state_lines(server)
        if server.stop is not None:
            for step in server.stop.steps:
                # What is waited for is told once, however its amount changes.
                if self._first(f"stop {_AMOUNT.sub('', step)}"):
                    found.append(f"{self._stop(server.stop.elapsed_s)} {step}")
        if server.probe is not None:
            found += self._probe_lines(server.probe)
        return found

    def _phase_lines(self, phase: PhaseView) -> list[str]:
        title = PHASE_TITLES[phase.phase]
        if phase.started_s is None:
            return []
        if phase.state is PhaseState.DONE and self._first(f"done {phase.phase}"):
            ended_s = phase.started_s + (phase.elapsed_s or 0.0)
            return [f"{self._launch(ended_s)} {title}: done in {duration(phase.elapsed_s)}"]
        lasting = phase.state is PhaseState.ACTIVE and (phase.elapsed_s or 0.0) >= _LONG_S
        if lasting and self._first(f"active {phase.phase}"):
            total = f", {phase.done} of {phase.total}" if phase.total else ""
            left = f", {duration_range(*phase.eta_s)} left" if phase.eta_s else ""
            return [f"{self._launch(phase.started_s)} {title}: under way{total}{left}"]
        if phase.state is PhaseState.FAILED and self._first(f"failed {phase.phase}"):
            ended_s = phase.started_s + (phase.elapsed_s or 0.0)
            return [f"{self._launch(ended_s)} {title}: failed"]
        return []

    def _state_lines(self, server: ServerView) -> list[str]:
        told = {ServerState.UNHEALTHY, ServerState.LOST, ServerState.FAILED, ServerState.READY}
        if server.state not in told or not self._first(f"state {server.state}"):
            return []
        detail = server.cause.sentence if server.cause is not None else server.detail
        if self._stop_began_s is None:
            at = self._launch(server.age_s)
        else:
            at = self._stop(server.age_s - self._stop_began_s)
        return [f"{at} {server.state}{f': {detail}' if detail else ''}"]

    def _probe_lines(self, probe: ProbeProgress) -> list[str]:
        self._probe_told, line = probe_line(probe, self._probe_told)
        return [line] if line else []

    def _first(self, key: str) -> bool:
        if key in self._told:
            return False
        self._told.add(key)
        return True


def probe_line(probe: ProbeProgress, told: int) -> tuple[int, str]:
    """Return how much has been told of a probe now, and the line for it if there is news."""
    plan = probe.plan
    share = probe.done * _PROBE_LINES // max(1, plan.requests)
    if plan.duration_s:
        share = max(share, int(probe.elapsed_s * _PROBE_LINES / plan.duration_s))
    if share == told or probe.state == "warming-up":
        return told, ""
    figures = probe.figures
    tok_s = figures.total_tok_s if probe.live_tok_s is None else probe.live_tok_s
    done = f"{probe.done} of {plural(plan.requests, 'request')}"
    if plan.duration_s:
        done = plural(probe.done, "request")
    line = (
        f"{_stamp(probe.elapsed_s)} probe at {plan.concurrency}: {done}, {rate(tok_s)} tok/s, "
        f"accept length {length(figures.accept_length)}"
    )
    left = probe.remaining_s
    return share, f"{line}, about {duration(left)} left" if left else line


def _stamp(at_s: float) -> str:
    return f"[{at_s:7.1f} s]"
