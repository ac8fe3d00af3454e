"""Runs a command's work until it ends or a person interrupts it; loads no services."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import FrameType
from typing import Any, TypeVar

from eaglemon.cli import diagnostics
from eaglemon.core.hosts import LinkState, of_host
from eaglemon.core.units import plural
from eaglemon.core.views import Snapshot
from eaglemon.errors import EXIT_INTERRUPTED, EaglemonError

Result = TypeVar("Result")
ANSWERED = frozenset({LinkState.UP, LinkState.STALE, LinkState.DEGRADED})
"""The states of a host that has answered."""


class InterruptedByPersonError(EaglemonError):
    """Ctrl-C was pressed, or the process was told to end."""

    exit_code = EXIT_INTERRUPTED


def run(
    work: Coroutine[Any, Any, Result],
    *,
    if_interrupted: str | Callable[[], str] = "",
    stopping: Callable[[], Sequence[str]] = tuple,
) -> Result:
    """Return what ``work`` does.

    Ctrl-C and SIGTERM cancel it and raise ``InterruptedByPersonError``, whose hint is
    ``if_interrupted``: what still goes on on the host. ``stopping`` tells the servers that the
    work stops before it ends: another Ctrl-C names them, and only the next one leaves them.
    """

    def interrupted(how: str) -> InterruptedByPersonError:
        hint = if_interrupted if isinstance(if_interrupted, str) else if_interrupted()
        return InterruptedByPersonError(how, hint=hint)

    with diagnostics.library_log():
        try:
            return asyncio.run(_until_ended(work, interrupted, stopping))
        except KeyboardInterrupt as error:
            raise interrupted("interrupted") from error


async def _until_ended(
    work: Coroutine[Any, Any, Result],
    interrupted: Callable[[str], InterruptedByPersonError],
    stopping: Callable[[], Sequence[str]],
) -> Result:
    """Return what ``work`` does; a batch system that ends this process leaves no half a thing."""
    if threading.current_thread() is not threading.main_thread():
        return await work  # Signals are of the main thread alone.
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    how, has_asked = "", False

    def end(word: str) -> None:
        nonlocal how
        how = how or word
        if task is not None:
            task.cancel()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal has_asked
        del number, frame
        if not how:
            end("interrupted")
            loop.call_soon_threadsafe(lambda: None)  # It may sleep for long.
            return
        left = () if has_asked else stopping()
        if not left:
            raise KeyboardInterrupt
        has_asked = True
        told = f"{plural(len(left), 'server')}: {', '.join(left)}; Ctrl-C once more to leave them"
        loop.call_soon_threadsafe(diagnostics.talk, f"still stopping {told}")

    loop.add_signal_handler(signal.SIGTERM, end, "ended by SIGTERM")
    before = signal.getsignal(signal.SIGINT)
    if callable(before):
        # Not the loop's: a question to a person keeps the loop waiting, and is to be left too.
        signal.signal(signal.SIGINT, on_interrupt)
    try:
        return await work
    except asyncio.CancelledError as error:
        if how:
            raise interrupted(how) from error
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        if callable(before):
            signal.signal(signal.SIGINT, before)


def unreachable(snapshot: Snapshot) -> list[str]:
    """Return a line for each host that has not answered, in a settled snapshot."""
    lines = []
    for host in snapshot.hosts:
        if host.state in ANSWERED:
            continue
        detail = host.detail or f"no answer ({host.state})"
        lines.append(of_host(host.name, detail))
    return lines
