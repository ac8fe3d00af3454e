"""Servers as last seen by a console of this user, for what cannot wait for a host: completion."""

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from eaglemon.core.hosts import LinkState
from eaglemon.core.views import Snapshot
from eaglemon.errors import UsageError
from eaglemon.io.files import write_bytes
from eaglemon.io.paths import user_state_folder

_log = logging.getLogger(__name__)

KEPT_OF_A_HOST = 30
"""The living and the newest of the others."""
_PASSING = "simulated host"
"""Source of hosts that end with their console: of the demo."""
_ANSWERS = frozenset({LinkState.UP, LinkState.DEGRADED, LinkState.STALE})


class SeenServer(msgspec.Struct, frozen=True, kw_only=True):
    """One server, as a console last saw it."""

    id: str
    name: str
    state: str
    ended: bool


SeenByHost = dict[str, list[SeenServer]]


def seen_file() -> Path:
    """Return the file that they are kept in."""
    return user_state_folder() / "seen-servers.json"


def remember_servers(snapshot: Snapshot, path: Path | None = None) -> None:
    """Keep the servers of the hosts that answer; what was kept of other hosts stays.

    Trouble with the file is only logged: no command is about it.
    """
    place = path or seen_file()
    before = recall_servers(place)
    now = dict(before)
    for host in snapshot.hosts:
        if host.state in _ANSWERS and host.spec.source != _PASSING:
            mine = [one for one in snapshot.servers if one.host == host.name]
            mine.sort(key=lambda one: one.state.ended)
            now[host.name] = [
                SeenServer(id=one.id, name=one.name, state=one.state.value, ended=one.state.ended)
                for one in mine[:KEPT_OF_A_HOST]
            ]
    if now == before:
        return
    try:
        with contextlib.suppress(FileExistsError):
            place.parent.mkdir(parents=True)
        write_bytes(place, msgspec.json.encode(now))
    except (OSError, UsageError) as error:
        _log.warning("servers are not remembered for completion: %s", error)


def recall_servers(path: Path | None = None) -> SeenByHost:
    """Return the servers by host, nothing where none were kept or the file cannot be read."""
    try:
        return msgspec.json.decode((path or seen_file()).read_bytes(), type=SeenByHost)
    except (OSError, msgspec.DecodeError):
        return {}


def all_of(seen: SeenByHost) -> Iterable[tuple[str, SeenServer]]:
    """Yield (host, server), the living first."""
    pairs = [(host, one) for host, servers in seen.items() for one in servers]
    return sorted(pairs, key=lambda pair: pair[1].ended)
