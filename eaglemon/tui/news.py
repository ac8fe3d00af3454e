"""What is worth a message when it happens: a start that ended, a server that failed or went."""

from typing import Literal

from eaglemon.core import units
from eaglemon.core.hosts import LinkState
from eaglemon.core.views import ServerState, ServerView, Snapshot

News = tuple[str, Literal["information", "warning", "error"]]


def news(before: Snapshot, after: Snapshot) -> list[News]:
    """Return the messages for what changed from ``before`` to ``after``."""
    found: list[News] = []
    for server in after.servers:
        old = before.server(server.id)
        if old is not None and old.state is not server.state:
            found += _server_news(old, server)
    for host in after.hosts:
        known = before.host(host.name)
        if known is None or known.state is host.state:
            continue
        if host.state is LinkState.DOWN:
            found.append((f"{host.name} is down: {host.detail or 'no reason given'}", "warning"))
        elif host.state is LinkState.UP and known.state in {LinkState.DOWN, LinkState.STALE}:
            found.append((f"{host.name} is back", "information"))
    return found


def _server_news(old: ServerView, server: ServerView) -> list[News]:
    if server.state is ServerState.READY and old.state.starting:
        return [(f"{server.name} is ready after {units.duration(server.age_s)}", "information")]
    if server.state is ServerState.FAILED:
        why = server.cause.sentence if server.cause else str(server.exit or "cause unknown")
        return [(f"{server.name} failed: {why}", "error")]
    if server.state is ServerState.STOPPED:
        if server.stop is not None and server.stop.proven:
            took = units.duration(server.stop.elapsed_s)
            return [(f"{server.name} is stopped; memory is back after {took}", "information")]
        return [(f"{server.name} is stopped", "information")]
    if server.state is ServerState.UNHEALTHY:
        return [(f"{server.name} is unhealthy: {server.detail or 'no answer'}", "warning")]
    return []
