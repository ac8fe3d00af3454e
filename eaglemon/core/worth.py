"""Whether speculation pays on a running server: its probe beside one of the same without."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eaglemon.core.capacity import Capacity, capacity_of
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.views import ServerView


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A server's capacity, and the server without speculation that it is measured against."""

    capacity: Capacity
    baseline: str
    """Name of that server."""
    live_length: float | None
    """The accept length at this moment."""

    @property
    def pays(self) -> bool:
        """The accept length, live where it is known, is above break-even."""
        length = self.live_length or self.capacity.accept_length
        return length > self.capacity.overhead


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWorth:
    """What an experiment that was kept has shown of the same command line on the same host."""

    run: str
    """Id of the experiment."""
    told: str
    """The verdict with its interval, in a sentence."""
    concurrency: int
    """Requests at a time."""
    break_even: float | None = None
    """Accept length at which the server would be as fast as one that does not speculate."""
    at: float
    """When it was measured, in unix seconds."""


def worth_of(
    server: ServerView, servers: Iterable[ServerView], models: Mapping[str, str]
) -> Worth | None:
    """Return what speculation brings ``server``, as far as two like probes tell.

    They are alike in host, engine, model, number of GPUs, workload, concurrency and length of the
    answers. ``models`` is the target by profile. ``None`` where one of the two probes lacks.
    """
    mine = _done(server)
    model = models.get(server.profile)
    if mine is None or server.speculation is None or model is None:
        return None
    for other in servers:
        theirs = _done(other)
        like = (
            theirs is not None
            and other.speculation is None
            and (other.host, other.engine) == (server.host, server.engine)
            and models.get(other.profile) == model
            and len(other.gpu_indexes) == len(server.gpu_indexes)
            and _kind(theirs) == _kind(mine)
        )
        if theirs is None or not like:
            continue
        live = server.acceptance.accept_length if server.acceptance is not None else None
        capacity = capacity_of(
            mine.figures,
            theirs.figures,
            concurrency=mine.plan.concurrency,
            ceiling=server.speculation.ceiling,
        )
        if capacity is not None:
            return Worth(capacity=capacity, baseline=other.name, live_length=live)
    return None


def _done(server: ServerView) -> ProbeProgress | None:
    probe = server.probe
    # While a server is probed anew, what was measured before stands.
    return probe if probe is not None and probe.state == "done" else server.measured


def _kind(probe: ProbeProgress) -> tuple[object, ...]:
    plan = probe.plan
    return (plan.workload, plan.concurrency, plan.max_tokens, plan.temperature, plan.ignore_eos)
