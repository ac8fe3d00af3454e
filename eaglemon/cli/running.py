"""Runs a command's work until it ends or a person interrupts it; loads no services."""

import asyncio
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
    """Ctrl-C was pressed."""

    exit_code = EXIT_INTERRUPTED


def run(work: Coroutine[Any, Any, Result], *, if_interrupted: str = "") -> Result:
    """Return what ``work`` does.

    Ctrl-C cancels it and raises ``InterruptedByPersonError``, whose hint is ``if_interrupted``:
    what still goes on on the host.
    """
    with diagnostics.library_log():
        try:
            return asyncio.run(work)
        except KeyboardInterrupt as error:
            raise InterruptedByPersonError("interrupted", hint=if_interrupted) from error


def unreachable(snapshot: Snapshot) -> list[str]:
    """Return a line for each host that has not answered, in a settled snapshot."""
    lines = []
    for host in snapshot.hosts:
        if host.state in ANSWERED:
            continue
        detail = host.detail or f"no answer ({host.state})"
        lines.append(of_host(host.name, detail))
    return lines
