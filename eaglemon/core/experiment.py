"""Experiments as values: arms, the order of their measurements, and when to stop.

An arm is a server with a way to ask it. Arms whose servers are started alike share one server,
and the order keeps them together, so that a server is restarted only where its flags differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from eaglemon.core.problems import Problem, Severity
from eaglemon.core.profiles import ProbeDefaults, Profile
from eaglemon.core.stats import expected_effect


class Order(StrEnum):
    """How the arms of a round are ordered."""

    ABBA = "abba"
    """Forwards, then backwards: a steady drift falls on all arms alike, with few restarts."""
    RANDOM = "random"
    """Each round in an order of its own, drawn with the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to serve and to ask, to be compared with others."""

    name: str
    host: str
    profile: Profile
    settings: Mapping[str, str] = field(default_factory=dict)
    """What was changed of the profile by that name (``--set``)."""
    shell_line: str = ""
    """What a person would type to start its server, secrets masked."""

    server_key: str = ""
    """Same for arms that one server can serve; made from host and profile unless given."""

    def __post_init__(self) -> None:
        """Fill in the key; a stored arm keeps its own, since its secrets are masked."""
        if not self.server_key:
            object.__setattr__(self, "server_key", f"{self.host}/{self.profile.digest()}")

    @property
    def request(self) -> ProbeDefaults:
        """How it is asked."""
        return self.profile.probe


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRules:
    """When to stop before all rounds are done; fixed before the first measurement.

    Width and time only: stopping when a difference looks significant finds differences in noise.
    """

    half_width: float = 0.02
    """Stop once every ratio's interval is within this share of its ratio."""
    limit_s: float | None = None
    """No measurement begins later than this after the start."""
    first_look: int = 2
    """Rounds before the width counts: without a repeat nothing tells the drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One measurement: an arm in a round."""

    arm: int
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlan:
    """A whole experiment, ready to be confirmed."""

    id: str
    kind: str = "ab"
    """``ab`` or ``sweep``."""
    arms: tuple[Arm, ...]
    rounds: int = 2
    order: Order = Order.ABBA
    seed: int = 1
    stop: StopRules = field(default_factory=StopRules)
    restore: bool = False
    """Start again, at the end, the servers that had to make room."""
    keep: bool = False
    """Leave the servers of the experiment running at its proper end."""
    parallel: bool = False
    """Arms that share no GPU and no port run side by side."""

    @property
    def legs(self) -> tuple[Leg, ...]:
        """All measurements in order."""
        return legs_of(
            [arm.server_key for arm in self.arms], self.rounds, order=self.order, seed=self.seed
        )

    @property
    def prompts(self) -> int:
        """Prompts that every arm is asked."""
        return min((arm.request.requests for arm in self.arms), default=0)

    @property
    def expected_effect(self) -> float | None:
        """Smallest log effect that so many prompts could show, drift left aside."""
        return expected_effect(self.prompts)


def legs_of(
    servers: Sequence[str], rounds: int, *, order: Order = Order.ABBA, seed: int = 1
) -> tuple[Leg, ...]:
    """Return the measurements of arms whose servers have these keys, in order."""
    rng = Random(seed)  # noqa: S311 - repeatable, not secret
    keys = list(dict.fromkeys(servers))
    members = {key: [i for i, own in enumerate(servers) if own == key] for key in keys}
    legs = []
    for number in range(rounds):
        turn = list(keys)
        turned = order is Order.ABBA and number % 2 == 1
        if turned:
            turn.reverse()
        elif order is Order.RANDOM:
            rng.shuffle(turn)
        for key in turn:
            inner = list(members[key])
            if turned:
                inner.reverse()
            elif order is Order.RANDOM:
                rng.shuffle(inner)
            legs += [Leg(arm=arm, round=number) for arm in inner]
    return tuple(legs)


def starts_needed(plan: ExperimentPlan, running: Sequence[str] = ()) -> int:
    """Return how many servers the plan starts, when those with keys ``running`` are up.

    A server is kept for later legs unless another one needs its GPUs or its port.
    """
    up = {arm.server_key: arm for arm in plan.arms if arm.server_key in running}
    starts = 0
    for leg in plan.legs:
        arm = plan.arms[leg.arm]
        if arm.server_key in up:
            continue
        up = {key: other for key, other in up.items() if not in_the_way(arm, other)}
        up[arm.server_key] = arm
        starts += 1
    return starts


def in_the_way(one: Arm, other: Arm) -> bool:
    """Tell whether two arms' servers cannot run at the same time."""
    return one.host == other.host and overlaps(
        one.profile.port, one.profile.gpus, other.profile.port, other.profile.gpus
    )


def overlaps(
    port: int,
    gpus: Sequence[int] | None,
    other_port: int,
    other_gpus: Sequence[int] | None,
) -> bool:
    """Tell whether servers of one host share a port or a GPU; unnamed GPUs may be any."""
    if port == other_port or gpus is None or other_gpus is None:
        return True
    return bool(set(gpus) & set(other_gpus))


def lanes_of(plan: ExperimentPlan) -> tuple[tuple[Leg, ...], ...]:
    """Return the measurements by lane; lanes may run side by side.

    Without ``parallel`` there is one. With it, arms that are in each other's way share a lane.
    """
    if not plan.parallel:
        return (plan.legs,)
    lane_of: dict[int, int] = {}
    for index, arm in enumerate(plan.arms):
        mine = {lane_of[i] for i, other in enumerate(plan.arms[:index]) if in_the_way(arm, other)}
        lane_of[index] = min(mine, default=index)
        # An arm between two lanes joins them.
        lane_of = {i: lane_of[index] if lane in mine else lane for i, lane in lane_of.items()}
    lanes = sorted(set(lane_of.values()))
    return tuple(tuple(leg for leg in plan.legs if lane_of[leg.arm] == lane) for lane in lanes)


def flag_differences(one: Profile, other: Profile) -> tuple[tuple[str, str, str], ...]:
    """Return (setting, value of one, value of other) where two profiles differ, sorted."""
    left, right = _settings(one), _settings(other)
    return tuple(
        (key, left.get(key, "-"), right.get(key, "-"))
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    )


MOST_ROUNDS = 100
"""More are a slip of the finger: each round starts a server for each arm."""


def plan_problems(plan: ExperimentPlan) -> list[Problem]:
    """Return what is wrong with an experiment, or weakens what it can show."""
    problems = []
    names = [arm.name for arm in plan.arms]
    if len(plan.arms) < 2:
        problems.append(
            _problem("arms", "one arm is nothing to compare", "name a second profile", "one-arm")
        )
    if len(set(names)) < len(names):
        problems.append(_problem("arms", "two arms have one name", "change one", "same-name"))
    asked = {(arm.request.workload, arm.request.requests) for arm in plan.arms}
    if len(asked) > 1:
        problems.append(
            _problem(
                "workload",
                "the arms are asked different prompts, so nothing can be paired",
                "give all arms one workload and one number of requests",
                "other-prompts",
            )
        )
    tokens = {(arm.request.max_tokens, arm.request.temperature) for arm in plan.arms}
    if len(tokens) > 1:
        problems.append(
            _warning("requests", "the arms are asked for other lengths or temperatures", "lengths")
        )
    if plan.rounds > MOST_ROUNDS:
        problems.append(
            _problem(
                "rounds",
                f"{plan.rounds} rounds restart servers for days",
                f"use {MOST_ROUNDS} or fewer, and more requests for a finer difference",
                "many-rounds",
            )
        )
    if plan.rounds < 2:
        problems.append(
            _warning("rounds", "without a repeat nothing tells the drift of a restart", "no-repeat")
        )
    if plan.parallel and len({arm.host for arm in plan.arms}) < len(lanes_of(plan)):
        problems.append(
            _warning(
                "parallel",
                "arms side by side on one host share its CPU cores, memory bandwidth and power",
                "shared-host",
            )
        )
    return problems


def _settings(profile: Profile) -> dict[str, str]:
    values: dict[str, object] = {
        "engine": profile.engine,
        "model": profile.model,
        "draft": profile.draft,
        "port": profile.port,
        "gpus": profile.gpus,
        "python": profile.python,
        "command": profile.command or None,
        "workdir": profile.workdir,
    }
    speculation = profile.speculation
    values["speculation"] = None if speculation is None else speculation.algorithm
    if speculation is not None:
        values |= {
            "speculation.steps": speculation.steps,
            "speculation.topk": speculation.topk,
            "speculation.draft_tokens": speculation.draft_tokens,
        }
    values |= dict(profile.flags)
    values |= {f"env.{name}": value for name, value in profile.env.items()}
    request = profile.probe
    values |= {
        "request.workload": request.workload,
        "request.requests": request.requests,
        "request.concurrency": request.concurrency,
        "request.max_tokens": request.max_tokens,
        "request.temperature": request.temperature,
    }
    return {key: str(value) for key, value in values.items() if value is not None}


def _problem(where: str, message: str, hint: str, slug: str) -> Problem:
    return Problem(where=where, message=message, hint=hint, slug=slug)


def _warning(where: str, message: str, slug: str) -> Problem:
    return Problem(where=where, message=message, severity=Severity.WARNING, slug=slug)
