"""Runs a command's work until it ends or a person interrupts it; loads no services."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from eaglemon.cli import diagnostics
from eaglemon.core.hosts import LinkState, of_host
from eaglemon.core.views import Snapshot
from eaglemon.errors import EXIT_INTERRUPTED, EaglemonError

Result = TypeVar("Result")
ANSWERED = frozenset({LinkState.UP, LinkState.STALE, LinkState.DEGRADED})
"""The states of a host that has answered."""


class InterruptedByPersonError(EaglemonError):
    """Ctrl-C was pressed, or the process was told to end."""

    exit_code = EXIT_INTERRUPTED


def run(work: Coroutine[Any, Any, Result], *, if_interrupted: str = "") -> Result:
    """Return what ``work`` does.

    Ctrl-C and SIGTERM cancel it and raise ``InterruptedByPersonError``, whose hint is
    ``if_interrupted``: what still goes on on the host.
    """
    with diagnostics.library_log():
        try:
            return asyncio.run(_until_terminated(work, if_interrupted))
        except KeyboardInterrupt as error:
            raise InterruptedByPersonError("interrupted", hint=if_interrupted) from error


async def _until_terminated(work: Coroutine[Any, Any, Result], if_interrupted: str) -> Result:
    """Return what ``work`` does; a batch system that ends this process leaves no half a thing."""
    if threading.current_thread() is not threading.main_thread():
        return await work  # Signals are of the main thread alone.
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    terminated = False

    def end() -> None:
        nonlocal terminated
        terminated = True
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        return await work
    except asyncio.CancelledError as error:
        if terminated:
            raise InterruptedByPersonError("ended by SIGTERM", hint=if_interrupted) from error
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def unreachable(snapshot: Snapshot) -> list[str]:
    """Return a line for each host that has not answered, in a settled snapshot."""
    lines = []
    for host in snapshot.hosts:
        if host.state in ANSWERED:
            continue
        detail = host.detail or f"no answer ({host.state})"
        lines.append(of_host(host.name, detail))
    return lines
