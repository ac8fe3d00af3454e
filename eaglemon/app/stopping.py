"""A stop as whoever asked for it waits for it: each step has a limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from eaglemon.app.keeper import Keeper
from eaglemon.core.views import ServerState, ServerView
from eaglemon.errors import ServerError, TimeLimitError

LOST_S = 30.0
"""So long the account of a server is waited for whose host is up and has not told of it."""
STOP_MARGIN_S = 30.0

Until: TypeAlias = Callable[[Keeper, Callable[[ServerView], bool]], Awaitable[ServerView]]
"""Waits until a server's view is as wanted, and returns it."""


def _refuse(keeper: Keeper) -> None:
    """Raise ``ServerError`` where a server cannot be stopped from here."""
    if keeper.foreign is not None:
        raise ServerError(
            f"{keeper.id} was started by {keeper.foreign.user}, not from here",
            hint=f"eaglemon kill {keeper.id} --foreign",
        )
    if keeper.state.ended and not keeper.pids:
        raise ServerError(f"{keeper.id} is not running: {keeper.state.value}")


async def stop_kept(
    keeper: Keeper, until: Until, *, grace_s: float | None, wait: bool
) -> ServerView:
    """Stop a server and ``wait`` until its GPU memory is back.

    Raises ``HostError`` without its host, ``ServerError`` where there is nothing to stop, and
    ``TimeLimitError`` where the host tells nothing of it, or the stop does not end.
    """
    _refuse(keeper)
    await keeper.host.until_up()
    try:
        async with asyncio.timeout(LOST_S):
            await until(keeper, lambda view: view.state is not ServerState.LOST)
    except TimeoutError as error:
        raise TimeLimitError(
            f"{keeper.host.spec.name} has told nothing of {keeper.id} for {LOST_S:.0f} s: "
            f"{keeper.host.view().detail or keeper.machine.detail}",
            hint="it was not stopped; try again once the host tells of it",
        ) from error
    limits = keeper.profile.limits
    grace = grace_s if grace_s is not None else limits.stop_grace_s
    keeper.stop(grace)
    if not wait:
        return await until(keeper, lambda _: True)
    try:
        async with asyncio.timeout(grace + limits.release_s + STOP_MARGIN_S):
            await until(
                keeper, lambda view: view.state.ended or view.state is ServerState.UNHEALTHY
            )
        await keeper.hooks_done()
        return await until(keeper, lambda _: True)
    except TimeoutError as error:
        raise TimeLimitError(
            f"{keeper.id} is still {keeper.state.value}",
            hint="look at its processes on the host",
        ) from error
