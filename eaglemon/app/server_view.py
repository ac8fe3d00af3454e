"""Builds the view of a server from what its keeper knows. Reads only; called often."""

from dataclasses import replace

from eaglemon.app.keeper import Keeper
from eaglemon.app.runs import notes_of
from eaglemon.app.stop_account import is_unreadable, stop_view, waits_for
from eaglemon.core.diagnosis import GENERIC_CAUSE
from eaglemon.core.eta import Eta, estimate
from eaglemon.core.phases import PHASE_TITLES, Phase
from eaglemon.core.release import GONE_UNPROVEN
from eaglemon.core.stall import stall_limit
from eaglemon.core.startup import StartupTrack
from eaglemon.core.units import duration, duration_range, plural
from eaglemon.core.views import (
    AcceptanceView,
    CauseView,
    ExitView,
    HealthVerdict,
    PhaseView,
    ServerState,
    ServerView,
)
from eaglemon.engines.changes import changes_for
from eaglemon.engines.reading import remedy_that_holds, settings_of

_WATCHES = {
    "log": "reading its log",
    "metrics": "reading its metrics",
    "health": "asking for its health",
    "token": "asking for a first token",
    "pulse": "asking for tokens",
    "memory": "watching the GPU memory",
    "stop": "stopping it",
    "spawn": "starting it",
    "preflight": "the checks before its start",
}
"""What a server loses with a task that ended by a mistake of ours."""


def server_view(keeper: Keeper, *, now: float, wall: float) -> ServerView:
    """Return the view at monotonic ``now`` and unix ``wall``."""
    machine, seen, record = keeper.machine, keeper.seen, keeper.record
    profile = keeper.profile
    ended = machine.state.ended
    end = seen.ended_wall if ended and seen.ended_wall is not None else wall
    phases = keeper.log.track.views(now)
    health = replace(seen.health, age_s=now - seen.health_at) if seen.health else None
    exit_ = machine.exit
    cause = _cause(keeper) if machine.state is ServerState.FAILED else None
    starting = machine.state.starting
    rest_s = now - _moved_at(keeper)
    stalled = starting and rest_s > stall_limit(keeper.log.track.current, profile.stall_limits)
    eta = Eta()
    if starting:
        phases, eta = estimate(phases, keeper.past.times)
    command_line = keeper.plan.shell_line if keeper.plan else ""
    if keeper.foreign is not None:
        command_line = keeper.foreign.command_line
    if not command_line and record is not None:
        command_line = notes_of(record).shell_line or " ".join(record.argv)
    return ServerView(
        id=keeper.id,
        name=profile.name,
        host=keeper.host.spec.name,
        profile=profile.name,
        engine=profile.engine,
        state=machine.state,
        detail=_detail(keeper, cause, now, eta, stalled=stalled),
        stalled=stalled,
        command_line=command_line,
        port=profile.port,
        speculation=profile.speculation,
        gpu_indexes=_gpu_indexes(keeper),
        pid=record.pid if record else keeper.foreign.pid if keeper.foreign else None,
        pids=tuple(sorted(keeper.pids)),
        memory_used_bytes=seen.memory_bytes,
        launched_at=keeper.launched_wall,
        ready_at=_ready_at(keeper, phases),
        age_s=max(0.0, end - keeper.launched_wall),
        phases=phases,
        ready_eta_s=eta.ready_s,
        eta_source=eta.source or "",
        usual_start_s=keeper.past.usual_s,
        measured=keeper.seen.probed,
        health=health,
        acceptance=_acceptance(keeper, now) if machine.was_ready and not ended else None,
        load=keeper.meter.load(now, since=_since(keeper))
        if machine.was_ready and not ended
        else None,
        accept_history=tuple(keeper.meter.accept_history),
        tok_s_history=tuple(keeper.meter.tok_s_history),
        exit=ExitView(code=exit_.code, signal=exit_.signal, at=exit_.at) if exit_ else None,
        cause=cause,
        stop=stop_view(keeper, wall),
        stop_grace_s=profile.limits.stop_grace_s,
        log_path=record.log_path if record else "",
        notes=_notes(keeper),
        probe=keeper.probe,
    )


def _acceptance(keeper: Keeper, now: float) -> AcceptanceView | None:
    if keeper.profile.speculation is None:
        return None
    return keeper.meter.acceptance(now, since=_since(keeper))


def _since(keeper: Keeper) -> str:
    """Name the span that begins with the first reading of the metrics."""
    return "since ready" if keeper.plan is not None else "since seen"


def _gpu_indexes(keeper: Keeper) -> tuple[int, ...]:
    if keeper.profile.gpus is not None:
        return keeper.profile.gpus
    sample = keeper.host.sample
    held = keeper.seen.held_uuids
    return tuple(gpu.index for gpu in sample.gpus if gpu.uuid in held) if sample else ()


def _detail(keeper: Keeper, cause: CauseView | None, now: float, eta: Eta, *, stalled: bool) -> str:
    machine = keeper.machine
    detail = machine.detail
    match machine.state:
        case ServerState.STARTING | ServerState.SPAWNING:
            detail = _start(keeper, now, eta, stalled=stalled)
        case ServerState.WARMING:
            detail = detail or "asking for the first token"
        case ServerState.UNHEALTHY if machine.silent:
            detail = f"hung: {_silence(keeper, now) or detail}"
        case ServerState.UNHEALTHY if machine.was_ready and not machine.hung:
            detail = _unhealthy(keeper, detail)
        case ServerState.UNHEALTHY if unasked := _unasked(keeper):
            detail = f"{detail}, {unasked}"
        case ServerState.FAILED:
            detail = cause.sentence if cause else detail
        case ServerState.STOPPING:
            detail = f"{plural(len(keeper.pids), 'process')} left"
        case ServerState.RELEASING:
            detail = waits_for(keeper.seen.release)
        case ServerState.STOPPED if machine.stop and is_unreadable(keeper.seen.release):
            detail = detail if machine.memory_unseen else GONE_UNPROVEN
        case _:
            pass
    return detail


def _start(keeper: Keeper, now: float, eta: Eta, *, stalled: bool) -> str:
    """Say how far a start is, and what of it rests."""
    detail = _progress(keeper.log.track)
    spun_s = now - max(keeper.seen.worked_at, keeper.log.moved_at)
    limit_s = stall_limit(keeper.log.track.current, keeper.profile.stall_limits)
    if stalled:
        detail += f", nothing has moved for {duration(now - _moved_at(keeper))}"
    elif spun_s > limit_s:
        detail += f", only the CPU has moved for {duration(spun_s)}"
    elif eta.ready_s is not None:
        detail += f", ready in {duration_range(*eta.ready_s)}"
    silence = _unasked(keeper) or _silence(keeper, now)
    return f"{detail}, {silence}" if silence else detail


def _unasked(keeper: Keeper) -> str:
    """Say why its health could not even be asked for; empty where it could."""
    health = keeper.seen.health
    return health.detail if health and health.verdict is HealthVerdict.UNKNOWN else ""


def _silence(keeper: Keeper, now: float) -> str:
    """Say since when the health path has not answered; empty where it does, or is not open."""
    seen, path = keeper.seen, keeper.engine.endpoints.health
    if seen.silent_since is not None:
        return f"listening, {path} has not answered for {duration(now - seen.silent_since)}"
    if seen.health is None and seen.asked_at is not None and seen.is_silent(now):
        return f"{path} has not answered yet, after {duration(now - seen.asked_at)}"
    return ""


def _unhealthy(keeper: Keeper, detail: str) -> str:
    """Name a hang as one: the health path generates, and is not answered; the metrics are."""
    health, generates = keeper.seen.health, keeper.engine.health_generates
    late = health is not None and health.verdict is HealthVerdict.TIMED_OUT
    if late and generates and not keeper.meter.missing:
        return f"hung: metrics answer, generation does not ({detail})"
    return detail


def _progress(track: StartupTrack) -> str:
    words = PHASE_TITLES[track.current]
    if track.current_stage:
        words += f": {track.current_stage}"
    if track.progress:
        done, total = track.progress
        words += f" {done}/{total}"
    return words


def _cause(keeper: Keeper) -> CauseView:
    machine = keeper.machine
    exit_ = machine.exit
    verb = "is" if len(keeper.pids) == 1 else "are"
    left = f"; {plural(len(keeper.pids), 'process')} {verb} left behind" if keeper.pids else ""
    how = ""
    if exit_ is not None:
        how = exit_.reason or str(ExitView(code=exit_.code, signal=exit_.signal))
    fault = keeper.log.faults.best
    if fault is not None:
        known = fault.cause != GENERIC_CAUSE
        remedy = remedy_that_holds(fault.remedy, settings_of(keeper.profile))
        return CauseView(
            slug=fault.cause if known else None,
            sentence=(fault.cause.replace("-", " ") if known else fault.line.strip())
            + (f" ({how})" if how else "")
            + (f": {keeper.seen.stranger}" if keeper.seen.stranger else "")
            + left,
            decisive_line=fault.line,
            line_number=fault.line_number,
            remedy=remedy,
            changes=changes_for(fault.cause, remedy, fault.line, keeper.profile),
        )
    sentence = machine.detail or (f"ended by itself: {how}" if how else "ended")
    return CauseView(slug=None, sentence=sentence + left)


def _ready_at(keeper: Keeper, phases: tuple[PhaseView, ...]) -> float | None:
    for view in phases if keeper.log.knows_ready else ():
        if view.phase is Phase.READY and view.started_s is not None:
            return keeper.launched_wall + view.started_s
    return None


def _moved_at(keeper: Keeper) -> float:
    return max(keeper.seen.moved_at, keeper.log.moved_at)


def _notes(keeper: Keeper) -> tuple[str, ...]:
    notes = [*keeper.preflight_notes, *keeper.log.notes]
    if keeper.meter.missing:
        notes.append(keeper.meter.missing)
    notes += [f"{_WATCHES.get(task, task)} stopped: {e}" for task, e in keeper.seen.broken.items()]
    return tuple(notes)
