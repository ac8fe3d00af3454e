"""What ``eaglemon probe`` does with an open console: the levels, and the calibration."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eaglemon.app.api import Eaglemon
from eaglemon.app.calibration import calibrate
from eaglemon.cli import diagnostics, session
from eaglemon.cli.progress import probe_line
from eaglemon.core.capacity import Capacity, capacity_of
from eaglemon.core.probe import ProbePlan, ProbeProgress
from eaglemon.core.server_url import Trust, is_url
from eaglemon.errors import UsageError

ENDED = frozenset({"done", "failed", "cancelled"})
_PER_USER = 2
"""Requests of each user at least, where their number is not given."""
_BY_DURATION = 20_000
"""Most requests of a probe that a duration ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What was measured."""

    probes: tuple[ProbeProgress, ...]
    forced: tuple[ProbeProgress, ...] = ()
    forced_lengths: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the command does with an open console."""

    server: str
    levels: tuple[int, ...]
    overrides: dict[str, str]
    api_key: str | None
    trust: Trust
    calibrate: bool
    forced: tuple[float, ...]
    kept: list[ProbeProgress] = field(default_factory=list)
    """Each probe that has ended, in whatever way: what is left of a command that breaks off."""

    async def __call__(self, console: Eaglemon) -> Results:
        """Carry it out."""
        target, ceiling = await self._find(console)
        plans = self._plans(console, target)
        lengths = self.forced or ((float(ceiling),) if ceiling else ())
        if self.calibrate and not lengths:
            raise UsageError(f"{self.server} tells no ceiling", hint="say which: --forced 2,4")
        if self.calibrate:
            for length in lengths:  # What cannot be done is told before anything is measured.
                console.relaunch_plan(target, forced_length=length)
        probes = [await console.probe(target, plan, seen=Teller(self.kept)) for plan in plans]
        made_up: tuple[ProbeProgress, ...] = ()
        if self.calibrate:
            made_up = await calibrate(
                console, target, plans[0], lengths, say=diagnostics.talk, seen=Teller([])
            )
        return Results(probes=tuple(probes), forced=made_up, forced_lengths=lengths)

    async def _find(self, console: Eaglemon) -> tuple[str, int | None]:
        if is_url(self.server):
            await console.settle()
            host = console.hosts()[0].name
            target = await console.reach(
                self.server, host=host, api_key=self.api_key, trust=self.trust
            )
            return target, None
        found = await session.find_server(console, self.server)
        speculation = found.speculation
        return found.id, speculation.ceiling if speculation else None

    def _plans(self, console: Eaglemon, target: str) -> list[ProbePlan]:
        usual = console.probe_plan(target, self.overrides)
        plans = []
        for level in self.levels or (usual.concurrency,):
            requests = usual.requests
            if "requests" not in self.overrides:
                requests = max(requests, _PER_USER * level)
                if usual.duration_s is not None:
                    requests = _BY_DURATION
            plans.append(replace(usual, concurrency=level, requests=requests))
        return plans


class Teller:
    """Tells a probe's progress in about ten lines on stderr."""

    def __init__(self, kept: list[ProbeProgress]) -> None:
        """``kept`` gets the probe when it has ended."""
        self._told = -1
        self._kept = kept

    def __call__(self, probe: ProbeProgress) -> None:
        """Take the progress."""
        if probe.state in ENDED:
            self._kept.append(probe)
        told, line = probe_line(probe, self._told)
        self._told = told
        if line:
            diagnostics.talk(line)


def capacities_of(
    probes: Sequence[ProbeProgress], baseline: Sequence[ProbeProgress]
) -> tuple[Capacity, ...]:
    """Return the capacity at each level that both results have and tell enough of."""
    slow = {probe.plan.concurrency: probe.figures for probe in baseline}
    pairs = [(p, slow[p.plan.concurrency]) for p in probes if p.plan.concurrency in slow]
    found = [
        capacity_of(
            probe.figures,
            figures,
            concurrency=probe.plan.concurrency,
            ceiling=len(probe.figures.per_position) + 1 if probe.figures.per_position else None,
        )
        for probe, figures in pairs
    ]
    return tuple(capacity for capacity in found if capacity is not None)
