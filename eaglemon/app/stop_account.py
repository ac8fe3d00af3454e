"""The account of a stop in words: what was sent, what is left, and what would help."""

from eaglemon.app.keeper import Keeper
from eaglemon.core.holders import memory_holders, process_holds
from eaglemon.core.release import GONE_UNPROVEN, Release, gone_unseen
from eaglemon.core.runs import RunStop
from eaglemon.core.units import duration, memory, plural
from eaglemon.core.views import ServerState, StopView

_TELL_HOLDERS_S = 5.0
"""A driver lets go of memory a moment after a process has ended; later somebody holds it."""


def stop_view(keeper: Keeper, wall: float) -> StopView | None:
    """Return the account at unix ``wall``, ``None`` where no stop was asked for."""
    machine, release = keeper.machine, keeper.seen.release
    stop = machine.stop
    if stop is None and machine.release_proven:
        # It ended by itself before the host's account of the stop was seen.
        return StopView(
            steps=("no process was left", _back(keeper, None)),
            processes_left=len(keeper.pids),
            memory_to_release_bytes=release.held_bytes if release else None,
            proven=True,
            memory_unseen=machine.memory_unseen,
        )
    if stop is None:
        asked = machine.state in {ServerState.STOPPING, ServerState.RELEASING}
        return StopView(steps=("stop asked for",)) if asked else None
    end = keeper.seen.ended_wall if machine.state.ended and keeper.seen.ended_wall else wall
    began = stop.requested_at - keeper.host.clock_offset_s
    elapsed_s = max(0.0, end - began)
    steps = [*_signals(keeper, stop)]
    if stop.gone_at is not None:
        steps.append(f"all processes gone after {duration(stop.gone_at - stop.requested_at)}")
    if machine.state is ServerState.RELEASING:
        limit = f", for {duration(keeper.profile.limits.release_s)} at most"
        rest = limit if is_unreadable(release) else f" to come back{_so_far(release)}"
        steps.append(f"{waits_for(release)}{rest}")
    elif (
        machine.state is ServerState.STOPPED
        and is_unreadable(release)
        and not machine.memory_unseen
    ):
        steps.append(GONE_UNPROVEN)
    if machine.release_proven or machine.memory_unseen:
        steps.append(_back(keeper, elapsed_s))
    late = stop.gone_at is not None and wall - began - (stop.gone_at - stop.requested_at) > (
        _TELL_HOLDERS_S
    )
    if release is not None and not release.back and late:
        steps += memory_holders(
            (*release.holders, *release.others),
            user=keeper.host.user,
            ours=frozenset(keeper.seen.pids_ever),
        )
    return StopView(
        steps=tuple(steps),
        processes_left=len(keeper.pids),
        memory_to_release_bytes=release.held_bytes if release else None,
        elapsed_s=elapsed_s,
        proven=machine.release_proven,
        memory_unseen=machine.memory_unseen,
    )


def is_unreadable(release: Release | None) -> bool:
    """Tell whether the memory of a stopped run's GPUs could not be read."""
    return release is not None and release.held_bytes is None


def waits_for(release: Release | None) -> str:
    """Say what a stop waits for whose processes are gone."""
    if release is not None and release.unknown:
        return f"waiting for GPU memory: {release.unknown}"
    if is_unreadable(release):
        return "waiting for the driver: GPU memory cannot be read"
    held = f"{memory(release.held_bytes)} of " if release else ""
    return f"waiting for {held}GPU memory"


def _signals(keeper: Keeper, stop: RunStop) -> list[str]:
    steps = []
    if stop.term_sent_at is not None:
        steps.append(f"TERM sent to {plural(stop.term_count, 'process')}")
    if stop.kill_sent_at is not None and stop.term_sent_at is not None:
        waited = duration(stop.kill_sent_at - stop.term_sent_at)
        steps.append(f"{plural(stop.kill_count, 'process')} killed after {waited}")
    if stop.left:
        steps.append("survived KILL: " + ", ".join(str(pid) for pid in stop.left))
        known = keeper.status.processes if keeper.status else ()
        steps += [
            process_holds(one, user=keeper.host.user) for one in known if one.pid in stop.left
        ]
    if stop.error:
        steps.append(stop.error)
    return steps


def _so_far(release: Release | None) -> str:
    if release is None or release.gpus < 2:
        return ""
    return f", {release.gpus_back} of {plural(release.gpus, 'GPU')} are back"


def _back(keeper: Keeper, elapsed_s: float | None) -> str:
    release = keeper.seen.release
    if keeper.machine.memory_unseen:
        return gone_unseen(keeper.machine.memory_unseen)
    if release is None:
        return "it held no GPU memory"
    after = "" if elapsed_s is None else f" after {duration(elapsed_s)}"
    if release.gpus < 2:
        return f"GPU memory is back{after}"
    return f"memory of all {release.gpus} GPUs is back{after}"
