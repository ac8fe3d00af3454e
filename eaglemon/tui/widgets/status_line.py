"""The first line of every screen: what is up, what is not, and what time the picture is of."""

from collections import Counter
from datetime import tzinfo

from textual.content import Content
from textual.widget import Widget

from eaglemon.core import units
from eaglemon.core.hosts import LinkState
from eaglemon.core.views import ServerState, Snapshot
from eaglemon.tui.columns import first_that_fits, joined, spread

_ORDER = (
    ("ready", "$state-ready"),
    ("starting", "$state-starting"),
    ("stopping", "$state-warning"),
    ("unhealthy", "$state-warning"),
    ("lost", "$state-warning"),
    ("failed", "$state-failed"),
)


class StatusLine(Widget):
    """One line over everything the console knows."""

    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; background: $panel; color: $foreground; }
    """

    def __init__(self, zone: tzinfo | None) -> None:
        super().__init__()
        self._zone = zone
        self._snapshot: Snapshot | None = None
        self._marks = ""
        self._title = ""

    def show(self, snapshot: Snapshot | None, *, title: str, marks: str = "") -> None:
        """Show ``snapshot``; ``marks`` are words such as PAUSED that must not be overlooked."""
        self._snapshot, self._title, self._marks = snapshot, title, marks
        self.refresh()

    def render(self) -> Content:
        """Draw as much as fits; states before totals."""
        width = self.size.width
        if self._snapshot is None or self._snapshot.at == 0.0:
            return spread(Content.styled(self._title, "bold"), Content("…"), width)
        end = Content.styled(units.clock(self._snapshot.at, self._zone), "")
        if self._marks:
            end = joined(Content.styled(f" {self._marks} ", "reverse bold"), "  ", end)
        room = width - end.cell_length - 2
        title = Content.styled(self._title, "bold $primary")
        hosts, short_hosts, gpus = _totals(self._snapshot)
        states, short_states = _states(self._snapshot)
        gap = "   "
        start = first_that_fits(
            room,
            joined(title, gap, hosts, gap, gpus, gap, states),
            joined(title, gap, hosts, gap, states),
            joined(hosts, gap, states),
            joined(short_hosts, "  ", short_states),
            short_states,
        )
        return spread(start, end, width)


def _totals(snapshot: Snapshot) -> tuple[Content, Content, Content]:
    # Servers run on a degraded host as on any other.
    up = sum(host.state in {LinkState.UP, LinkState.DEGRADED} for host in snapshot.hosts)
    total = len(snapshot.hosts)
    gpus = sum(len(host.sample.gpus) for host in snapshot.hosts if host.sample)
    style = "" if up == total else "$state-warning"
    hosts = joined("hosts ", Content.styled(f"{up}/{total} up", style))
    short = Content.styled(f"{up}/{total} up", style)
    return hosts, short, Content(f"gpus {gpus}")


def _states(snapshot: Snapshot) -> tuple[Content, Content]:
    counts: Counter[str] = Counter()
    for server in snapshot.servers:
        counts[_group(server.state)] += 1
    found = [(name, style) for name, style in _ORDER if counts[name]]
    if not found:
        none = Content("no servers running")
        return none, Content("no servers")
    parts = [Content.styled(f"{counts[name]} {name}", style) for name, style in found]
    return joined("servers ", Content(" · ").join(parts)), Content(" ").join(parts)


def _group(state: ServerState) -> str:
    if state.answering:
        return "ready"
    if state.starting:
        return "starting"
    if state in {ServerState.STOPPING, ServerState.RELEASING}:
        return "stopping"
    return state.value
