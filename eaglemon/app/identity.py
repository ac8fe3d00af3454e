"""Is the server that answers the one that was launched, by what it says of itself?"""

import json
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Protocol

from eaglemon.app.host import Host
from eaglemon.core.profiles import Profile
from eaglemon.core.runs import RunRecord
from eaglemon.engines.base import Engine
from eaglemon.errors import EaglemonError, UsageError
from eaglemon.io.host_link import HostLink
from eaglemon.io.http import HttpClient, HttpLimits

_FIRST_BYTES = 256 * 1024
"""Engines tell their configuration early in the log."""
_LIMIT_S = 20.0


class Launched(Protocol):
    """What is known of the server that was launched (``eaglemon.app.keeper.Keeper``)."""

    engine: Engine
    host: Host
    profile: Profile
    record: RunRecord | None

    def http(self) -> HttpClient:
        """Return the client of this server; raises ``HostError`` while the host is not up."""
        ...


async def who_else(server: Launched, card: Mapping[str, object]) -> str | None:
    """Say that another server answers on the port; ``None`` when all it tells fits the run.

    ``card`` is what it says of its model. Raises ``HostError`` while the host is not up.
    """
    profile = _as_started(server)
    name, wanted = card.get("id"), profile.served_name or profile.model
    by = f"port {profile.port} is answered by"
    if isinstance(name, str) and name != wanted:
        return f"{by} a server of {name}, not of {wanted}"
    info, log = None, list[str]()
    if server.engine.endpoints.info is not None:
        info = await _info(server.http(), server.engine.endpoints.info)
    elif server.record is not None:
        with suppress(EaglemonError):
            log = await first_lines(server.host.link, server.record.id)
    unlike = server.engine.unlike(profile, card, info, log)
    return f"{by} another server: {'; '.join(unlike)}" if unlike else None


async def first_lines(link: HostLink, run_id: str) -> list[str]:
    """Return the lines at the beginning of a run's log; raises ``EaglemonError``."""
    data = bytearray()
    wanted = min(await link.log_tail(run_id, lines=0), _FIRST_BYTES)
    if wanted > 0:
        async with aclosing(link.follow_log(run_id, offset=0)) as chunks:
            async for chunk in chunks:
                data += chunk.data
                if len(data) >= wanted or chunk.ended:
                    break
    return data[:_FIRST_BYTES].decode("utf-8", "replace").splitlines()


def _as_started(server: Launched) -> Profile:
    if server.record is not None:
        with suppress(UsageError):  # It may be a program of the user's own.
            return server.engine.profile_of(server.record.argv)
    return server.profile


async def _info(http: HttpClient, path: str) -> object:
    answer = await http.request("GET", path, limits=HttpLimits(read_s=_LIMIT_S))
    if answer.status != 200:
        return None
    try:
        return json.loads(answer.body)
    except ValueError:
        return None
