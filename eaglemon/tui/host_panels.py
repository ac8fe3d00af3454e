"""What the panels of a host say, as content for a width. Pure: views in, content out."""

from collections.abc import Sequence

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.foreign import ForeignServer
from eaglemon.core.hosts import GpuProcess, LinkState
from eaglemon.core.views import HostView, ServerView
from eaglemon.tui.columns import first_that_fits, joined, left, plain, spread, wrapped
from eaglemon.tui.looks import LINK_LOOKS

_DOT = " · "
_OWNER_WIDTH = 18
_ONE_LINE_FROM = 76
"""Where a process has room in one line; else its command has a line of its own."""


def title_line(host: HostView, width: int) -> Content:
    """Return who the host is, what it runs on, and how it is reached."""
    look = LINK_LOOKS[host.state]
    state = Content.styled(f"{look.glyph} {look.word}", look.style)
    name = Content.styled(plain(host.name), "bold")
    facts: list[str] = []
    if host.facts is not None:
        facts.append(f"{host.facts.user}@{host.facts.hostname}")
        if host.facts.driver_version:
            facts.append(f"driver {host.facts.driver_version}")
        if host.facts.cpu_count:
            facts.append(f"{host.facts.cpu_count} CPUs")
        if host.facts.memory_total_bytes:
            facts.append(f"{units.memory(host.facts.memory_total_bytes)} RAM")
        facts.append(f"Python {host.facts.python_version}")
    texts = ["".join(_DOT + plain(fact) for fact in facts[:n]) for n in range(len(facts), -1, -1)]
    room = max(0, width - state.cell_length - 2)
    variants = [joined(name, Content.styled(text, "$quiet")) for text in texts]
    return spread(first_that_fits(room, *variants), state, width)


def age_of(host: HostView) -> str:
    """Return the age of the figures for a title, stale marked in words."""
    if host.sample_age_s is None:
        return " ─ no data yet"
    word = (
        "STALE, " if host.state in {LinkState.STALE, LinkState.DOWN, LinkState.CONNECTING} else ""
    )
    return f" ─ {word}{units.age(host.sample_age_s)}"


def process_lines(
    host: HostView,
    servers: Sequence[ServerView],
    width: int,
    others: Sequence[ForeignServer] = (),
) -> list[Content]:
    """Return who holds memory of which GPU: pid, owner, memory, server, container and command.

    ``servers`` are those of this console on the host, ``others`` those that no console started.
    """
    sample = host.sample
    if sample is None:
        return [Content.styled("not known yet", "$quiet")]
    if not sample.processes:
        told = "nobody holds GPU memory" if sample.unseen is None else "the driver does not tell"
        return [Content.styled(told, "$quiet")]
    index = {gpu.uuid: gpu.index for gpu in sample.gpus}
    owners = _Owners(servers, others)
    one_line = width >= _ONE_LINE_FROM
    head = f"{'GPU':>3} {'PID':>8} {'USER':<9}{'MEMORY':>10}  {'BELONGS TO':<{_OWNER_WIDTH}}"
    head += "  [CONTAINER] COMMAND" if one_line else ""
    rows = [Content.styled(head, "$quiet").truncate(width)]
    for process in sorted(sample.processes, key=lambda p: (index.get(p.gpu_uuid, 999), p.pid)):
        gpu = str(index.get(process.gpu_uuid, "-"))
        start = f"{gpu:>3} {process.pid:>8} {plain(process.user or '-')[:8]:<9}"
        start += units.memory(process.memory_bytes).rjust(10) + "  "
        rest = max(0, width - len(start))
        if one_line:
            owner = left(owners.of(process), _OWNER_WIDTH)
            what = left(_command(process), max(0, rest - _OWNER_WIDTH - 2), "$quiet")
            rows.append(joined(start, owner, "  ", what))
            continue
        rows.append(joined(start, left(owners.of(process), rest)))
        rows.append(joined("    ", left(_command(process), max(0, width - 4), "$quiet")))
    return rows


class _Owners:
    """Tells which server a process belongs to."""

    def __init__(self, servers: Sequence[ServerView], others: Sequence[ForeignServer]) -> None:
        self._names = {server.id: server.name for server in servers}
        # A server that was started by anyone is known by the processes that were found for it.
        self._by_pid = {pid: f"foreign {other.id}" for other in others for pid in other.pids}
        self._by_pid |= {pid: server.name for server in servers for pid in server.pids}

    def of(self, process: GpuProcess) -> str:
        """Return the server's name, else its run, ``-`` where it belongs to none."""
        if process.run_id is not None:
            return self._names.get(process.run_id, process.run_id)
        return self._by_pid.get(process.pid, units.UNKNOWN)


def _command(process: GpuProcess) -> str:
    what = process.command or units.UNKNOWN
    if process.container is None:
        return what
    inside = "" if process.container_pid is None else f" pid {process.container_pid}"
    return f"[{process.container}{inside}] {what}"


def foreign_lines(found: Sequence[ForeignServer] | None, error: str, width: int) -> list[Content]:
    """Return the servers that no console started; ``None`` is not asked yet."""
    if error:
        text = f"servers of others: {error}"
        return [Content.styled(line, "$state-warning") for line in wrapped(text, width)]
    if found is None:
        return [Content.styled("servers of others: asking the host", "$quiet")]
    if not found:
        return [Content.styled("no servers of others", "$quiet")]
    rows = [Content.styled("Servers of others (w watches them)", "bold")]
    for server in found:
        rows += [Content(line) for line in wrapped(str(server), width, 3)]
    return rows
