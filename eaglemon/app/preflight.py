"""What stands against a launch, all at once and before anything starts."""

from collections.abc import Iterable

from eaglemon.app.draft_check import draft_problems
from eaglemon.app.forwarding import forwarding_refusal
from eaglemon.app.host import Host
from eaglemon.core.hosts import GpuSample, HostSample
from eaglemon.core.nvidia_smi import NOT_READ, advise
from eaglemon.core.problems import Problem, Severity, errors_among
from eaglemon.core.runs import HostCheck, PathFact, PortListener
from eaglemon.core.units import memory
from eaglemon.core.views import LaunchPlan, ServerView
from eaglemon.engines.base import Engine
from eaglemon.engines.command import interpreter
from eaglemon.errors import LaunchRefusedError
from eaglemon.io.workloads import workload_problems

GPU_IN_USE_SHARE = 0.02
"""Less is a driver context or a desktop, not a server."""
SHM_LOW_BYTES = 256 * 1024**2
STATE_LOW_BYTES = 256 * 1024**2
_SHOWN_COMMAND = 60
_SHM = "/dev/shm"  # noqa: S108 -- named in a message


async def check_launch(
    plan: LaunchPlan, engine: Engine, host: Host, servers: Iterable[ServerView]
) -> list[Problem]:
    """Return all problems of ``plan`` on ``host``; raises ``HostError`` when it cannot ask."""
    profile = plan.profile
    inside = profile.container is not None
    named = (profile.model, profile.draft, profile.workdir, profile.venv)
    paths = [] if inside else [path for path in named if _is_path(path)]
    answer = await host.link.check_host(
        paths=[path for path in paths if path is not None],
        port=profile.port,
        argv=list(plan.argv),
        # What a conda environment or a container holds is not to be seen from the host.
        python=interpreter(profile) if profile.direct else None,
        package=engine.package if profile.direct else None,
        env=plan.env,
    )
    return [
        *await _forwarding_problems(plan, host),
        *engine.check(profile, answer.engine_version),
        *workload_problems(profile.probe.workload),
        *_host_problems(plan, answer),
        *await draft_problems(host.link, profile),
        *_room_problems(plan, answer),
        *gpu_problems(plan, host.sample),
        *_neighbour_problems(plan, servers),
    ]


async def _forwarding_problems(plan: LaunchPlan, host: Host) -> list[Problem]:
    profile = plan.profile
    refusal = await forwarding_refusal(host.transport, [profile.port], address=profile.address)
    if refusal is None:
        return []
    return [
        Problem(
            where=f"port {profile.port}",
            message=f"{refusal.message}: the server could not be asked anything",
            hint=refusal.hint,
            slug="forwarding-refused",
        )
    ]


def _is_path(value: str | None) -> bool:
    return value is not None and value.startswith(("/", "~", "./"))


def _host_problems(plan: LaunchPlan, answer: HostCheck) -> list[Problem]:
    paths = (_path_problem(plan, fact) for fact in answer.paths)
    return [
        *_program_problems(plan, answer),
        *(problem for problem in paths if problem is not None),
        *(_port_problem(plan, listener) for listener in answer.listeners),
    ]


def _program_problems(plan: LaunchPlan, answer: HostCheck) -> list[Problem]:
    if answer.program is None:
        return [
            Problem(
                where=plan.argv[0],
                message=f"no such program on {plan.host}",
                hint="set python or command in the profile to where the engine is installed",
                slug="program-missing",
            )
        ]
    if answer.engine_error is None:
        return []
    return [
        Problem(
            where=interpreter(plan.profile),
            message=f"{answer.engine_error} on {plan.host}",
            hint="set python in the profile to the interpreter that has the engine",
            severity=Severity.WARNING if plan.profile.command else Severity.ERROR,
            slug="engine-missing",
        )
    ]


def _path_problem(plan: LaunchPlan, fact: PathFact) -> Problem | None:
    if fact.kind == "missing":
        draft = fact.path == plan.profile.draft
        return Problem(
            where=fact.path,
            message=f"no such file or folder on {plan.host}",
            hint=f"correct {'draft' if draft else 'model'} in the profile, or use --set",
            slug="draft-path-missing" if draft else "model-path-missing",
        )
    if fact.kind == "silent":
        return Problem(
            where=fact.path,
            message=f"its file system on {plan.host} does not answer",
            hint="see whether its server is up, with ls on the host",
            slug="path-silent",
        )
    if fact.readable:
        return None
    return Problem(
        where=fact.path,
        message=f"cannot be read on {plan.host}",
        hint="check its owner and mode",
        slug="path-not-readable",
    )


def _port_problem(plan: LaunchPlan, listener: PortListener) -> Problem:
    who = "another user's process" if listener.pid is None else f"PID {listener.pid}"
    command = f" ({_shown(listener.command)})" if listener.command else ""
    owner = f" of {listener.user}" if listener.user else ""
    return Problem(
        where=f"port {listener.port}",
        message=f"in use on {plan.host} by {who}{owner}{command}",
        hint="stop it, or choose another port with --set port=N",
        slug="port-in-use",
    )


def _shown(command: str) -> str:
    whole = len(command) <= _SHOWN_COMMAND
    return command if whole else f"{command[: _SHOWN_COMMAND - 1].rstrip()}…"


def gpu_problems(plan: LaunchPlan, sample: HostSample | None) -> list[Problem]:
    """Return what stands against the GPUs of a launch, by one sample of its host."""
    wanted = plan.profile.gpus
    if wanted is None or sample is None:
        return []
    if sample.driver_error is not None:
        return [
            Problem(
                where="GPUs",
                message=f"the driver of {plan.host} does not answer: {sample.driver_error}",
                hint="use a host with GPUs, or take gpus out of the profile with --set gpus=none",
                slug="no-driver",
            )
        ]
    by_index = {gpu.index: gpu for gpu in sample.gpus}
    problems = []
    for index in wanted:
        gpu = by_index.get(index)
        if gpu is None:
            known = ", ".join(str(i) for i in sorted(by_index)) or "none"
            problems.append(
                Problem(
                    where=f"GPU {index}",
                    message=f"{plan.host} has no such GPU",
                    hint=f"its GPUs: {known}",
                    slug="gpu-missing",
                )
            )
            continue
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        if gpu.error is not None or used is None:
            problems.append(_unreadable(gpu))
            continue
        if not total or used / total < GPU_IN_USE_SHARE:
            continue
        holders = [p for p in sample.processes if p.gpu_uuid == gpu.uuid]
        names = ", ".join(f"PID {p.pid} of {p.user or 'unknown owner'}" for p in holders)
        problems.append(
            Problem(
                where=f"GPU {index}",
                message=f"{memory(used)} of {memory(total)} are in use"
                + (f" by {names}" if names else ""),
                hint="stop what holds it, or choose other GPUs with --set gpus=...",
                slug="gpu-in-use",
            )
        )
    return problems


def _unreadable(gpu: GpuSample) -> Problem:
    """Tell a GPU that has failed, and one whose memory is merely not told."""
    if gpu.error is not None and not gpu.error.startswith(NOT_READ):
        return Problem(
            where=f"GPU {gpu.index}",
            message=f"it cannot be read: {advise(gpu.error)}",
            hint="choose other GPUs with --set gpus=...",
            slug="gpu-unreadable",
        )
    return Problem(
        where=f"GPU {gpu.index}",
        message="the driver does not tell how much of its memory is in use",
        hint="see nvidia-smi there before a long start",
        severity=Severity.WARNING,
        slug="gpu-memory-unknown",
    )


def _room_problems(plan: LaunchPlan, answer: HostCheck) -> list[Problem]:
    rooms = (
        (_SHM, answer.shm_free_bytes, SHM_LOW_BYTES, "shm-low", "its processes share memory"),
        ("state folder", answer.state_free_bytes, STATE_LOW_BYTES, "disk-low", "the log goes"),
    )
    return [
        Problem(
            where=where,
            message=f"only {memory(free)} are free on {plan.host}, where {what} there",
            hint="make room before a long start",
            severity=Severity.WARNING,
            slug=slug,
        )
        for where, free, low, slug, what in rooms
        if free is not None and free < low
    ]


def _neighbour_problems(plan: LaunchPlan, servers: Iterable[ServerView]) -> list[Problem]:
    problems = []
    for server in servers:
        if server.host != plan.host or server.state.ended:
            continue
        # SGLang binds its port only after loading: a server on its way holds it already.
        if server.port == plan.profile.port and server.state.starting:
            problems.append(
                Problem(
                    where=f"port {server.port}",
                    message=f"{server.id} is {server.state.value} and will use it",
                    hint="stop it first, or choose another port with --set port=N",
                    slug="port-in-use",
                )
            )
        # A server that has just begun holds no memory yet, so the driver does not tell.
        shared = sorted(set(server.gpu_indexes) & set(plan.profile.gpus or ()))
        if shared and server.state.starting:
            problems.append(
                Problem(
                    where=f"GPU {', '.join(map(str, shared))}",
                    message=f"{server.id} is {server.state.value} and will use it",
                    hint="stop it first, or choose other GPUs with --set gpus=...",
                    slug="gpu-in-use",
                )
            )
    return problems


def refuse(problems: Iterable[Problem]) -> None:
    """Raise ``LaunchRefusedError`` if there are errors among ``problems``, a line for each."""
    if errors := errors_among(problems):
        raise LaunchRefusedError("\n".join(str(problem) for problem in errors))
