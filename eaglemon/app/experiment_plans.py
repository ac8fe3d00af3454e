"""Plans of experiments: from names and settings to arms, what to expect, what came out."""

import asyncio
import math
import secrets
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from eaglemon.app.experiment_console import ExperimentConsole
from eaglemon.app.experiment_servers import in_the_way
from eaglemon.core.confounders import confounders
from eaglemon.core.experiment import (
    Arm,
    ExperimentPlan,
    Leg,
    flag_differences,
    lanes_of,
    starts_needed,
)
from eaglemon.core.experiment_records import Environment
from eaglemon.core.experiment_views import Outlook
from eaglemon.core.problems import Problem, Severity, errors_among
from eaglemon.core.sweep import Combination, Skipped, combinations
from eaglemon.core.verdict import Findings, Trial, findings_of
from eaglemon.core.views import ServerView
from eaglemon.engines import engine_named
from eaglemon.errors import UsageError
from eaglemon.io.store import Store

CHECKS_AT_ONCE = 4
"""Launches that a host is asked about side by side; each looks for its engine there."""
USUAL_TOK_S = 60.0
"""Speed of a request where nothing was measured yet, to say about how long a probe takes."""


def arm_of(
    console: ExperimentConsole, text: str, host: str, settings: Mapping[str, str], *, name: str = ""
) -> Arm:
    """Return the arm of ``PROFILE`` or ``PROFILE+KEY=VALUE+...``, optionally ``@HOST``.

    ``settings`` hold for all arms; an arm's own come last. Raises as ``Eaglemon.plan`` does.
    """
    text, at, own_host = text.partition("@")
    profile, *changes = text.split("+")
    own: dict[str, str] = dict(settings)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise UsageError(f"{text}: {change!r} is no setting", hint="write PROFILE+KEY=VALUE")
        own[key] = value
    chosen = own_host if at else host
    plan = console.plan(profile, chosen, own)
    return Arm(
        name=name or (f"{text}@{own_host}" if at else text),
        host=chosen,
        profile=plan.profile,
        settings=own,
        shell_line=plan.shell_line,
    )


def sweep_arms(
    console: ExperimentConsole,
    profile: str,
    host: str,
    settings: Mapping[str, str],
    *,
    steps: Sequence[int],
    topk: Sequence[int],
    draft_tokens: Sequence[int] | None,
    concurrency: Sequence[int],
) -> tuple[tuple[Arm, ...], list[Skipped]]:
    """Return the arms of a sweep, those of one server together, and what is left out.

    A combination whose command line is another's, or that its engine refuses, is left out.
    """
    wanted, skipped = combinations(steps, topk, draft_tokens)
    lines: dict[str, Combination] = {}
    arms: list[Arm] = []
    for one in wanted:
        changes = {**settings, **one.settings}
        first = arm_of(console, profile, host, {**changes, "probe.concurrency": "1"})
        same = lines.get(first.shell_line)
        refused = errors_among(engine_named(first.profile.engine).check(first.profile))
        if same is not None:
            reason = f"its command line is that of {same.name}"
        elif refused:
            reason = str(refused[0])
        else:
            reason = ""
            lines[first.shell_line] = one
        if reason:
            skipped.append(Skipped(combination=one, reason=reason))
            continue
        arms += [
            arm_of(
                console,
                profile,
                host,
                {**changes, "probe.concurrency": str(users)},
                name=one.name if len(concurrency) == 1 else f"{one.name} x{users}",
            )
            for users in concurrency
        ]
    return tuple(arms), skipped


def new_id(kind: str, wall: float) -> str:
    """Return an id for an experiment that begins at unix seconds ``wall``."""
    moment = datetime.fromtimestamp(wall).astimezone()
    return f"{kind}-{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


async def outlook_of(console: ExperimentConsole, store: Store, plan: ExperimentPlan) -> Outlook:
    """Return what the experiment will do, from what runs now and what starts took before.

    Raises ``HostError`` where a host cannot be asked what stands against a start.
    """
    servers = console.snapshot().servers
    running = _running(plan, servers)
    known = {view.id for view, _ in running}
    others = {
        view.id: None
        for arm in plan.arms
        for view in in_the_way(arm, servers)
        if view.id not in known
    }
    starts = starts_needed(plan, [arm.server_key for _, arm in running])
    first = plan.arms[0].profile
    effect = plan.expected_effect
    told = await _standing(console, plan, [arm.server_key for _, arm in running])
    return Outlook(
        plan=plan,
        differences=tuple(
            (arm.name, flag_differences(first, arm.profile)) for arm in plan.arms[1:]
        ),
        starts=starts,
        running=tuple(view.id for view, _ in running),
        in_the_way=tuple(others),
        expected_s=await _expected_s(store, plan, starts),
        refused=tuple((names, one) for names, one in told if one.severity is Severity.ERROR),
        warned=tuple((names, one) for names, one in told if one.severity is not Severity.ERROR),
        smallest_effect=None if effect is None else math.expm1(effect),
        baseline_missing=all(arm.profile.speculation is not None for arm in plan.arms),
    )


async def expected_s(
    console: ExperimentConsole, store: Store, plan: ExperimentPlan
) -> float | None:
    """Return about how long the experiment takes from now, ``None`` where no start is known."""
    running = _running(plan, console.snapshot().servers)
    return await _expected_s(
        store, plan, starts_needed(plan, [arm.server_key for _, arm in running])
    )


def _running(plan: ExperimentPlan, servers: Iterable[ServerView]) -> list[tuple[ServerView, Arm]]:
    """Return the servers that serve an arm already, each with its arm."""
    by_line = {(arm.host, arm.shell_line): arm for arm in plan.arms}
    return [
        (view, by_line[view.host, view.command_line])
        for view in servers
        if view.state.answering and (view.host, view.command_line) in by_line
    ]


async def _standing(
    console: ExperimentConsole, plan: ExperimentPlan, running: Sequence[str]
) -> tuple[tuple[tuple[str, ...], Problem], ...]:
    """Return what there is to say of starting arms once what is in their way has been stopped."""
    at_once = asyncio.Semaphore(CHECKS_AT_ONCE)

    async def standing(arm: Arm) -> list[Problem]:
        launch = console.plan(arm.profile.name, arm.host, arm.settings)
        async with at_once:
            problems = await console.check(launch)
        blocking = in_the_way(arm, console.snapshot().servers)
        gpus = set(launch.profile.gpus or ())
        freed = {
            "port-in-use": any(one.port == launch.profile.port for one in blocking),
            "gpu-in-use": any(gpus & set(one.gpu_indexes) for one in blocking),
        }
        return [problem for problem in problems if not freed.get(problem.slug)]

    keys = [key for key in dict.fromkeys(arm.server_key for arm in plan.arms) if key not in running]
    members = {key: [arm for arm in plan.arms if arm.server_key == key] for key in keys}
    found: dict[Problem, list[str]] = {}
    for key, problems in zip(
        keys, await asyncio.gather(*(standing(members[key][0]) for key in keys)), strict=True
    ):
        for problem in problems:
            found.setdefault(problem, []).extend(arm.name for arm in members[key])
    return tuple((tuple(names), problem) for problem, names in found.items())


async def _expected_s(store: Store, plan: ExperimentPlan, starts: int) -> float | None:
    took: list[float] = []
    for arm in {arm.server_key: arm for arm in plan.arms}.values():
        found = await store.startups(arm.host, arm.profile.digest())
        took += [one.ready_s for one in found if one.ready_s is not None]
    if not took and starts:
        return None
    lanes = max(1, len(lanes_of(plan)))
    probes_s = sum(_probe_s(plan.arms[leg.arm]) for leg in plan.legs)
    starts_s = starts * statistics.median(took) if took else 0.0
    return (starts_s + probes_s) / lanes


def _probe_s(arm: Arm) -> float:
    request = arm.request
    tokens = (request.requests + request.warmup) * request.max_tokens
    return tokens / (USUAL_TOK_S * max(1, request.concurrency))


def nonce_of(plan: ExperimentPlan, leg: Leg) -> str:
    """Return what leads the prompts of a measurement.

    The same for all arms of a round, so that they are asked the same text; another one for arms
    of the same server and for each round, so that no prefix cache helps.
    """
    key = plan.arms[leg.arm].server_key
    place = sum(1 for arm in plan.arms[: leg.arm] if arm.server_key == key)
    return f"{plan.id[-4:]}.{leg.round}.{place}"


def experiment_findings(
    plan: ExperimentPlan,
    trials: tuple[Trial, ...],
    environments: Mapping[int, Environment],
    draws: int,
) -> Findings:
    """Return what the trials show, confounders included. Computes; keep it off the event loop."""
    speculates = [arm.profile.speculation is not None for arm in plan.arms]
    groups = [arm.request.concurrency for arm in plan.arms] if plan.kind == "sweep" else None
    found = findings_of(trials, speculates, groups=groups, seed=plan.seed, draws=draws)
    resolved = [
        environments[index].resolved if index in environments else {}
        for index in range(len(plan.arms))
    ]
    return replace(found, confounders=confounders(plan.arms, resolved))


def asked_of(arm: Arm) -> dict[str, str]:
    """Return the settings of the arm's probe, as ``probe_plan`` takes them."""
    values: Iterable[tuple[str, object]] = asdict(arm.request).items()
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values
        if value is not None
    }
