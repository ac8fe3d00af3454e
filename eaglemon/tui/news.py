"""What is worth a message when it happens: a start that ended, a server that failed or went."""

from dataclasses import dataclass
from typing import Literal

from eaglemon.core import units
from eaglemon.core.hosts import LinkState
from eaglemon.core.views import ServerState, ServerView, Snapshot

NEW_S = 10.0
"""What happened longer ago was only found now."""

_UP = frozenset({LinkState.UP, LinkState.DEGRADED})


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One message."""

    text: str
    severity: Literal["information", "warning", "error"] = "information"
    ends: bool = False
    """A long job ended with it, so that somebody who looks elsewhere wants to know."""


def news(before: Snapshot, after: Snapshot) -> list[News]:
    """Return the messages for what changed from ``before`` to ``after``."""
    found: list[News] = []
    for server in after.servers:
        old = before.server(server.id)
        if old is not None and old.state is not server.state:
            found += _server_news(old, server, after.at)
    for host in after.hosts:
        known = before.host(host.name)
        if known is None or known.state is host.state:
            continue
        if host.state is LinkState.DOWN:
            # A host that is tried again in vain keeps its reason meanwhile: that is told already.
            if known.state is not LinkState.CONNECTING or known.detail != host.detail:
                why = host.detail or "no reason given"
                found.append(News(text=f"{host.name} is down: {why}", severity="warning"))
        elif host.state in _UP and known.state not in _UP and known.facts is not None:
            found.append(News(text=f"{host.name} is back"))
    return found


def _server_news(old: ServerView, server: ServerView, now: float) -> list[News]:
    name = server.name
    if server.state is ServerState.READY and old.state.starting:
        # One that is found counts as starting until it was asked: it may be ready for long.
        at = server.ready_at
        if at is not None and now - at <= NEW_S:
            took = units.duration(at - server.launched_at)
            return [News(text=f"{name} is ready after {took}", ends=True)]
    if server.state is ServerState.FAILED:
        why = server.cause.sentence if server.cause else str(server.exit or "cause unknown")
        return [News(text=f"{name} failed: {why}", severity="error", ends=True)]
    if server.state is ServerState.STOPPED:
        if server.stop is not None and server.stop.proven:
            took = units.duration(server.stop.elapsed_s)
            held = server.stop.memory_to_release_bytes is not None
            back = f"memory is back after {took}" if held else "it held no GPU memory"
            if server.stop.memory_unseen:
                back = f"GPU memory cannot be seen: {server.stop.memory_unseen}"
            return [News(text=f"{name} is stopped; {back}", ends=True)]
        return [News(text=f"{name} is stopped", ends=True)]
    if server.state is ServerState.UNHEALTHY:
        why = server.detail or "no answer"
        return [News(text=f"{name} is unhealthy: {why}", severity="warning")]
    return []
