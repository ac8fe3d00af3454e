"""Finds the server that a person means."""

from collections.abc import Sequence

from eaglemon.core.hosts import LinkState, of_host
from eaglemon.core.problems import did_you_mean
from eaglemon.core.views import HostView, ServerView
from eaglemon.errors import HostError, UsageError

_ANSWERS = frozenset({LinkState.UP, LinkState.STALE, LinkState.DEGRADED})


def matching(text: str, servers: Sequence[ServerView]) -> list[ServerView]:
    """Return the servers with this id, else name, else id prefix: living ones first, then newest.

    ``servers`` are newest first.
    """
    exact = [server for server in servers if server.id == text]
    named = [server for server in servers if server.name == text]
    started = [server for server in servers if server.id.startswith(text)]
    return sorted(exact or named or started, key=lambda server: server.state.ended)


def find_server(text: str, servers: Sequence[ServerView], hosts: Sequence[HostView]) -> ServerView:
    """Return the server with this id, name (living ones first, then newest) or id prefix.

    ``servers`` are newest first. Raises ``UsageError`` where there is none, ``HostError`` where
    it may be on a host that does not answer.
    """
    found = matching(text, servers)
    if found:
        return found[0]
    for run in [run for view in hosts for run in view.damaged]:
        if run.id == text or run.id.startswith(text):
            raise UsageError(str(run))
    down = [view for view in hosts if view.state not in _ANSWERS]
    if down:
        reasons = "; ".join(of_host(view.name, view.detail) for view in down)
        raise HostError(f"no server {text!r} on the hosts that answer", hint=reasons)
    untold = [view for view in hosts if view.untold]
    if untold:
        reasons = "; ".join(
            f"{view.name} has not told its servers: {view.untold}" for view in untold
        )
        raise HostError(reasons, hint="try again once it answers")
    known = [server.id for server in servers if not server.state.ended]
    raise UsageError(
        f"no server {text!r} on {', '.join(view.name for view in hosts)}",
        hint=did_you_mean(text, known) or "no server is running",
    )
