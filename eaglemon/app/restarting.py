"""Restarts: the same server again on the same port, never two, and never in a crash loop."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from eaglemon.app.preflight import gpu_problems
from eaglemon.core.crashes import LOOP_EXITS, LOOP_WINDOW_S, is_crash_loop
from eaglemon.core.hosts import HostSample
from eaglemon.core.problems import errors_among
from eaglemon.core.units import duration
from eaglemon.core.views import LaunchPlan, ServerState, ServerView, Snapshot, Told
from eaglemon.errors import ServerError

_MEMORY_STEP_S = 0.3


class Console(Protocol):
    """What a restart needs of the domain API (``eaglemon.app.hub.Hub``)."""

    def snapshot(self) -> Snapshot:
        """Return everything known now."""
        ...

    def find(self, text: str) -> ServerView:
        """Return the server that a person means."""
        ...

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> LaunchPlan:
        """Return what starting this server again would run."""
        ...

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        """Stop a server and wait until its GPU memory is back."""
        ...

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        """Start a server and return its id."""
        ...


async def restart(
    console: Console,
    server_id: str,
    *,
    grace_s: float | None,
    told: Told = None,
) -> str:
    """Stop a server, wait for its memory, and start the same again on the same port.

    ``told`` of a wait for GPU memory. Returns the new id. Raises ``ServerError`` where anything of
    the old one may be left: a second server is never started on top of the first. Cancelled before
    the new one is begun, nothing is started; a stop that was asked for goes on.
    """
    view = console.find(server_id)
    plan = console.relaunch_plan(view.id)
    if not view.state.ended or view.pids:
        view = await console.stop(view.id, grace_s=grace_s)
        if view.state is not ServerState.STOPPED or view.stop is None or not view.stop.proven:
            raise ServerError(
                f"{view.id} is not shown to be gone: {view.detail or view.state.value}",
                hint="nothing was started; look at what holds the memory, then launch again",
            )
    await _memory_back(console, plan, view, told)
    return await console.launch(plan)


async def _memory_back(console: Console, plan: LaunchPlan, old: ServerView, told: Told) -> None:
    """Wait until the GPUs of a launch are free, for at most the profile's limit.

    A server that failed by itself leaves its memory to the driver for a moment, and a sample from
    before its end proves nothing. What is still in use at the end is for the preflight to tell,
    and so is at once what somebody else holds: it is not given back by waiting.
    """
    ended_at = old.launched_at + old.age_s
    limit_s = plan.profile.limits.release_s
    waits = False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while True:
                snapshot = console.snapshot()
                host = snapshot.host(plan.host)
                age_s = host.sample_age_s if host is not None else None
                fresh = age_s is not None and snapshot.at - age_s > ended_at
                if host is None or (fresh and not errors_among(gpu_problems(plan, host.sample))):
                    return
                if _held_by_another(plan, snapshot, old.id, host.sample if fresh else None):
                    return
                if fresh and told is not None and not waits:
                    waits = True
                    told(f"waiting for GPU memory on {plan.host}, up to {limit_s:g} s")
                await asyncio.sleep(_MEMORY_STEP_S)


def _held_by_another(
    plan: LaunchPlan, snapshot: Snapshot, old_id: str, sample: HostSample | None
) -> bool:
    """Tell whether a living server has the port or a GPU, or another process its memory."""
    wanted = set(plan.profile.gpus or ())
    if any(
        (wanted & set(one.gpu_indexes) or one.port == plan.profile.port)
        for one in snapshot.servers
        if one.host == plan.host and one.id != old_id and not one.state.ended
    ):
        return True
    if sample is None:
        return False
    uuids = {gpu.uuid for gpu in sample.gpus if gpu.index in wanted}
    # A process that is just ending has no command line any more, and may be one of the old server.
    return any(
        process.gpu_uuid in uuids and process.command and process.run_id != old_id
        for process in sample.processes
    )


async def keep_running(
    console: Console,
    server_id: str,
    *,
    ended: Callable[[str], Awaitable[ServerView]],
    told: Callable[[str], None],
) -> ServerView:
    """Start a server again whenever it fails by itself, until it is stopped by someone.

    ``ended`` waits until a server has ended. Raises ``ServerError`` on a crash loop. What counts
    is what the host remembers, so a console that was killed meanwhile forgets no crash.
    """
    while True:
        view = await ended(server_id)
        if view.state is ServerState.STOPPED:
            return view
        snapshot = console.snapshot()
        ends = [
            one.launched_at + one.age_s
            for one in snapshot.servers
            if (one.host, one.profile) == (view.host, view.profile)
            and one.state is ServerState.FAILED
            and one.pid is not None
        ]
        why = view.cause.sentence if view.cause else view.detail
        if is_crash_loop(ends, snapshot.at):
            raise ServerError(
                f"{view.profile} has ended {LOOP_EXITS} times within "
                f"{duration(LOOP_WINDOW_S)} on {view.host}, the last time by: {why}",
                hint="it is not started again; see eaglemon logs " + view.id,
            )
        told(f"{view.id} failed ({why}), starting it again")
        server_id = await restart(console, view.id, grace_s=None)
