"""The main job as a script over the domain API: what ``eaglemon demo --headless`` runs."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from eaglemon.app.api import Eaglemon
from eaglemon.core.hosts import LinkState
from eaglemon.core.phases import PHASE_TITLES
from eaglemon.core.units import duration, gib_pair, latency, length, memory, plural, rate
from eaglemon.core.views import PhaseState, PhaseView, ServerView
from eaglemon.errors import EaglemonError, ServerError

PROFILE = "sglang-eagle3"
_PROBE = {"requests": "8", "concurrency": "2", "max_tokens": "64", "warmup": "1"}
_MEMORY_SLACK_BYTES = 64 * 1024**2
"""Drivers give back a little less than was taken; less than this counts as back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the job."""

    name: str
    ok: bool
    took_s: float
    summary: str
    """One line: what happened, or why it did not."""
    details: tuple[str, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    console: Eaglemon
    host: str
    port: int
    server_id: str = ""
    used_before_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    summary: str
    details: tuple[str, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)


async def main_job(
    console: Eaglemon, host: str, *, clock: Callable[[], float], port: int
) -> AsyncIterator[Step]:
    """Yield each step as it ends; stops after the first that does not hold.

    ``clock`` returns seconds; ``port`` is one that is free on the host. A server that was started
    is stopped in any case.
    """
    job = _Job(console, host, port)
    steps: tuple[tuple[str, Callable[[_Job], Awaitable[_Found]]], ...] = (
        ("gpus", _show_gpus),
        ("launch", _launch),
        ("ready", _wait_ready),
        ("probe", _probe),
        ("kill", _kill),
        ("memory-back", _memory_back),
    )
    for name, step in steps:
        started = clock()
        try:
            found = await step(job)
        except EaglemonError as error:
            yield Step(name=name, ok=False, took_s=clock() - started, summary=str(error))
            break
        yield Step(
            name=name,
            ok=True,
            took_s=clock() - started,
            summary=found.summary,
            details=found.details,
            figures=found.figures,
        )
    else:
        return
    if job.server_id:
        started = clock()
        try:
            found = await _kill(job)
        except EaglemonError as error:
            yield Step(name="clean-up", ok=False, took_s=clock() - started, summary=str(error))
        else:
            took_s = clock() - started
            yield Step(name="clean-up", ok=True, took_s=took_s, summary=found.summary)


async def _show_gpus(job: _Job) -> _Found:
    snapshot = await job.console.settle()
    host = snapshot.host(job.host)
    if host is None or host.state is not LinkState.UP or host.sample is None:
        detail = host.detail if host else "it is not known"
        raise ServerError(f"{job.host} shows no GPUs: {detail or 'no sample came'}")
    gpus = host.sample.gpus
    if not gpus:
        raise ServerError(f"{job.host} has no GPU: {host.sample.driver_error or 'none listed'}")
    job.used_before_bytes = host.sample.memory_used_bytes(frozenset(gpu.uuid for gpu in gpus))
    lines = tuple(
        f"GPU {gpu.index}  {gpu.name or '-'}  "
        f"{gib_pair(gpu.memory_used_bytes, gpu.memory_total_bytes)} GiB"
        for gpu in gpus
    )
    used = memory(job.used_before_bytes)
    figures: dict[str, object] = {"gpus": len(gpus), "memory_used_bytes": job.used_before_bytes}
    return _Found(f"{plural(len(gpus), 'GPU')} on {job.host}, {used} in use", lines, figures)


async def _launch(job: _Job) -> _Found:
    plan = job.console.plan(PROFILE, job.host, {"port": str(job.port)})
    job.server_id = await job.console.launch(plan)
    return _Found(f"started {job.server_id}", (plan.shell_line,), {"server": job.server_id})


async def _wait_ready(job: _Job) -> _Found:
    server = await job.console.wait(job.server_id)
    if not server.state.answering:
        cause = server.cause.sentence if server.cause else server.detail
        raise ServerError(f"{server.id} is {server.state}: {cause}")
    shown = [phase for phase in server.phases if phase.state is PhaseState.DONE]
    missed = [phase for phase in server.phases if phase.state is PhaseState.SKIPPED]
    if missed:
        names = ", ".join(PHASE_TITLES[phase.phase] for phase in missed)
        raise ServerError(f"{server.id} is ready, but its log did not show: {names}")
    figures = {
        "phases": [
            {"phase": p.phase, "started_s": p.started_s, "elapsed_s": p.elapsed_s} for p in shown
        ]
    }
    lines = tuple(_phase_line(phase) for phase in shown)
    return _Found(f"{server.id} has generated a token", lines, figures)


async def _probe(job: _Job) -> _Found:
    plan = job.console.probe_plan(job.server_id, _PROBE)
    probe = await job.console.probe(job.server_id, plan)
    figures = probe.figures
    if probe.state != "done" or figures.ok != plan.requests:
        raise ServerError(
            f"the probe is {probe.state} with {figures.ok} of {plan.requests} requests ok"
            + (f": {probe.error}" if probe.error else "")
        )
    if figures.accept_length is None:
        raise ServerError("the probe saw no accept length although the server speculates")
    ttft_s = figures.ttft_s.median if figures.ttft_s else None
    return _Found(
        f"{figures.ok} requests, {rate(figures.total_tok_s)} tok/s, first token after "
        f"{latency(ttft_s)}, accept length {length(figures.accept_length)}",
        (),
        {
            "total_tok_s": figures.total_tok_s,
            "ttft_s": ttft_s,
            "accept_length": figures.accept_length,
            "accept_source": figures.accept_source,
        },
    )


async def _kill(job: _Job) -> _Found:
    server = await job.console.stop(job.server_id)
    if server.stop is None or not server.state.ended or server.pids:
        raise ServerError(f"{server.id} is {server.state}: {server.detail}")
    return _Found(f"{server.id} is gone", server.stop.steps, {"state": server.state})


async def _memory_back(job: _Job) -> _Found:
    server = job.console.find(job.server_id)
    host = job.console.snapshot().host(job.host)
    used = None
    if host is not None and host.sample is not None:
        used = host.sample.memory_used_bytes(frozenset(gpu.uuid for gpu in host.sample.gpus))
    _require_proof(server, used, job.used_before_bytes)
    figures: dict[str, object] = {"memory_used_bytes": used}
    return _Found(f"{memory(used)} in use again, as before the launch", (), figures)


def _require_proof(server: ServerView, used: int | None, before: int | None) -> None:
    if server.stop is None or not server.stop.proven:
        raise ServerError(f"it is not shown that the memory of {server.id} is back")
    if used is None or before is None or used > before + _MEMORY_SLACK_BYTES:
        raise ServerError(f"{memory(used)} in use, and {memory(before)} before the launch")


def _phase_line(phase: PhaseView) -> str:
    total = f"  {phase.done}/{phase.total}" if phase.total else ""
    return f"{PHASE_TITLES[phase.phase]:<12} {duration(phase.elapsed_s):>8}{total}"
