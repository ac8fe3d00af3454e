"""The linear mode: what changes, one line each, for screen readers and terminals without cursor."""

import re

from eaglemon.app.api import Eaglemon
from eaglemon.cli import output
from eaglemon.cli.progress import Progress
from eaglemon.cli.tables import without_servers
from eaglemon.core.hosts import GpuSample, LinkState
from eaglemon.core.units import clock, gib_pair, length, percent, plural, rate
from eaglemon.core.views import HostView, ServerView, Snapshot

_STAMP = re.compile(r"^\[[^\]]*\] ")
"""Every line has the time of day already."""


class Changes:
    """Turns snapshots into lines; nothing is said twice."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._told_at: float | None = None
        self._servers: dict[str, Progress] = {}
        self._hosts: dict[str, LinkState] = {}
        self._gpus: dict[tuple[str, int], str] = {}

    def lines(self, snapshot: Snapshot) -> list[str]:
        """Return what is new; the first snapshot is known already and only remembered."""
        first = self._told_at is None
        found: list[str] = []
        for host in snapshot.hosts:
            if self._hosts.get(host.name) not in {None, host.state}:
                why = f": {host.detail}" if host.detail else ""
                found.append(f"{host.name} is {host.state}{why}")
            self._hosts[host.name] = host.state
            for gpu in host.sample.gpus if host.sample else ():
                key, ill = (host.name, gpu.index), gpu.error or ""
                if self._gpus.get(key, ill) != ill:
                    found.append(f"{host.name} GPU {gpu.index}: {ill or 'answers again'}")
                self._gpus[key] = ill
        for server in snapshot.servers:
            name = _called(server, snapshot)
            if server.id not in self._servers and not server.state.ended:
                found.append(f"{name}: launched, port {server.port}")
            progress = self._servers.setdefault(server.id, Progress())
            found += [f"{name}: {_STAMP.sub('', text)}" for text in progress.lines(server)]
        if first:
            self._told_at = snapshot.at
            return []
        if self._told_at is not None and snapshot.at - self._told_at >= self._every_s:
            self._told_at = snapshot.at
            found += [_host_figures(host) for host in snapshot.hosts if host.sample]
            found += [
                _server_figures(s, _called(s, snapshot))
                for s in snapshot.servers
                if s.state.answering
            ]
        at = clock(snapshot.at, None)
        return [f"{at} {text}" for text in found]


def opening_lines(snapshot: Snapshot) -> list[str]:
    """Return what there is, a sentence each: a table is hard to follow by ear."""
    lines: list[str] = []
    for host in snapshot.hosts:
        why = f": {host.detail}" if host.detail else ""
        lines.append(f"{host.name} is {host.state}{why}")
        gpus = host.sample.gpus if host.sample else ()
        lines += [f"{host.name} GPU {gpu.index}: {_gpu(gpu)}" for gpu in gpus]
    for server in snapshot.servers:
        why = f", {server.detail}" if server.detail else ""
        lines.append(f"{_called(server, snapshot)} is {server.state}{why}")
    return [*lines, *without_servers(snapshot)]


def _gpu(gpu: GpuSample) -> str:
    if gpu.error is not None:
        return gpu.error
    parts = [gpu.name or "no name"]
    pair = gib_pair(gpu.memory_used_bytes, gpu.memory_total_bytes)
    parts.append("memory not known" if pair == "-" else f"{pair.replace('/', ' of ')} GiB")
    if gpu.utilisation_percent is not None:
        parts.append(f"busy {gpu.utilisation_percent} %")
    if gpu.temperature_c is not None:
        parts.append(f"{gpu.temperature_c} degrees")
    if gpu.power_w is not None:
        parts.append(f"{gpu.power_w:.0f} W")
    return ", ".join(parts)


async def watch(console: Eaglemon, every_s: float) -> None:
    """Write the status once, then each change until the call is cancelled."""
    snapshot = await console.settle()
    output.write_lines(opening_lines(snapshot))
    changes = Changes(every_s)
    changes.lines(snapshot)
    async for later in console.updates():
        found = changes.lines(later)
        if found:
            output.write_lines(found)


def _host_figures(host: HostView) -> str:
    gpus = host.sample.gpus if host.sample else ()
    used = [gpu.memory_used_bytes for gpu in gpus]
    total = [gpu.memory_total_bytes for gpu in gpus]
    known = None not in used and None not in total
    pair = gib_pair(sum(v or 0 for v in used), sum(v or 0 for v in total)) if known else "-"
    busy = [gpu.utilisation_percent for gpu in gpus if gpu.utilisation_percent is not None]
    mean = percent(sum(busy) / len(busy) / 100) if busy else "-"
    return f"{host.name}: {plural(len(gpus), 'GPU')}, {pair} GiB in use, busy {mean}"


def _called(server: ServerView, snapshot: Snapshot) -> str:
    """Return a server's name and host, and what tells it from others of that name there."""
    name = f"{server.name} on {server.host}"
    others = [
        one
        for one in snapshot.servers
        if (one.name, one.host) == (server.name, server.host) and one.id != server.id
    ]
    if any(one.port == server.port for one in others):
        return f"{name} ({server.id})"
    return f"{name} (port {server.port})" if others else name


def _server_figures(server: ServerView, name: str) -> str:
    accept = length(server.acceptance.accept_length if server.acceptance else None)
    speed = rate(server.load.tok_s if server.load else None)
    return f"{name}: {server.state}, accept length {accept}, {speed} tok/s"
