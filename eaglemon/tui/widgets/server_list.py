"""The list of servers: state, name, host and the figures that say whether speculation pays."""

from collections.abc import Callable
from typing import Any

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.views import PhaseState, ServerState, ServerView, Snapshot
from eaglemon.tui.columns import bar, joined, left, plain, right, spread
from eaglemon.tui.looks import SERVER_LOOKS, STALLED, Look
from eaglemon.tui.widgets.row_list import Row, RowList

_STATE_WIDTH = 11
_ACCEPT_WIDTH = 6
_SPEED_WIDTH = 8
_PROGRESS_WIDTH = 12
_AGE_WIDTH = 9


class ServerList(RowList):
    """Servers of a snapshot, the living newest first, then the ended, unless sorted otherwise."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._told: tuple[ServerView, ...] = ()
        self._servers: tuple[ServerView, ...] = ()
        self._empty = ""
        self._order = 0
        self._inverted = False

    def sort(self, step: int) -> str:
        """Sort by the next (1) or previous (-1) column and return how it is sorted now."""
        self._order = (self._order + step) % len(_ORDERS)
        return self._sorted_again()

    def invert(self) -> str:
        """Turn the order round and return how it is sorted now."""
        self._inverted = not self._inverted
        return self._sorted_again()

    def _sorted_again(self) -> str:
        self._servers = self._in_order(self._told)
        self.rebuild()
        name, _ = _ORDERS[self._order]
        return f"servers by {name}{', turned round' if self._inverted else ''}"

    def _in_order(self, servers: tuple[ServerView, ...]) -> tuple[ServerView, ...]:
        _, key = _ORDERS[self._order]
        if key is None:
            by_age = servers[::-1] if self._inverted else servers
            # One that can be acted on is never below the dead.
            return tuple(sorted(by_age, key=lambda server: server.state.ended))
        ordered = tuple(sorted(servers, key=key))
        return ordered[::-1] if self._inverted else ordered

    def show(self, snapshot: Snapshot, *, filter_text: str = "", empty: str = "") -> None:
        """Show the servers that match ``filter_text``; ``empty`` is said where there are none."""
        wanted = filter_text.lower()
        self._told = tuple(s for s in snapshot.servers if wanted in _searchable(s))
        self._servers = self._in_order(self._told)
        self._empty = f"nothing matches {filter_text!r}" if filter_text else empty
        self.rebuild()

    def build(self, width: int) -> tuple[Content | None, list[Row]]:
        """Return one row for each server, and a second with what it is waiting for."""
        figures = 1 + _ACCEPT_WIDTH + 1 + _SPEED_WIDTH
        rest = width - _STATE_WIDTH - 1 - figures
        host = min(14, rest // 3) if rest >= 24 else 0
        name = max(6, rest - host - (1 if host else 0))
        if not self._servers:
            return None, [
                Row("empty", Content.styled(f" {self._empty}", "$quiet"), selectable=False)
            ]
        header = "STATE".ljust(_STATE_WIDTH) + " " + "NAME".ljust(name)
        header += (" " + "HOST".ljust(host)) if host else ""
        header += " " + "ACCEPT".rjust(_ACCEPT_WIDTH) + " " + "TOK/S".rjust(_SPEED_WIDTH)
        rows: list[Row] = []
        for server in self._servers:
            rows.append(Row(server.id, _line(server, name, host)))
            below = _second_line(server, width)
            if below is not None:
                rows.append(Row(f"{server.id}/detail", below, selectable=False))
        return Content(header), rows


def _accept(server: ServerView) -> float:
    length = server.acceptance.accept_length if server.acceptance else None
    return -1.0 if length is None else length


def _speed(server: ServerView) -> float:
    speed = server.load.tok_s if server.load else None
    return -1.0 if speed is None else speed


_ORDERS: tuple[tuple[str, Callable[[ServerView], Any] | None], ...] = (
    ("age, newest first, the ended last", None),
    ("state", lambda s: list(ServerState).index(s.state)),
    ("name", lambda s: s.name),
    ("host", lambda s: s.host),
    ("accept length, highest first", lambda s: -_accept(s)),
    ("tok/s, highest first", lambda s: -_speed(s)),
)
"""What servers can be sorted by; ties stay as they were. Snapshots have them by age."""


def look_of(server: ServerView) -> Look:
    """Return the look of a server's state, ``STALLED`` while its start does not move."""
    return STALLED if server.stalled and server.state.starting else SERVER_LOOKS[server.state]


def progress_of(server: ServerView) -> tuple[int, int] | None:
    """Return ``(done, total)`` of the phase under way, where its log counts."""
    for phase in server.phases:
        if phase.state is PhaseState.ACTIVE:
            if phase.done is not None and phase.total:
                return phase.done, phase.total
            for stage in reversed(phase.stages):
                if stage.done is not None and stage.total:
                    return stage.done, stage.total
    return None


def _line(server: ServerView, name: int, host: int) -> Content:
    parts: list[Content | str] = [
        look_of(server).content(width=_STATE_WIDTH),
        " ",
        left(server.name, name, "bold" if server.state.answering else ""),
    ]
    if host:
        parts += [" ", left(server.host, host, "$quiet")]
    accept = speed = "-"
    if server.state.answering or server.state is ServerState.UNHEALTHY:
        accept = units.length(server.acceptance.accept_length if server.acceptance else None)
        speed = units.rate(server.load.tok_s if server.load else None)
    parts += [
        " ",
        right(accept, _ACCEPT_WIDTH, "$quiet" if accept == "-" else ""),
        " ",
        right(speed, _SPEED_WIDTH, "$quiet" if speed == "-" else ""),
    ]
    return joined(*parts)


def _second_line(server: ServerView, width: int) -> Content | None:
    if server.state.answering and not server.stalled:
        return None
    detail = server.detail or (server.cause.sentence if server.cause else "")
    start = joined("  ", left(detail, max(0, width - 2), "$quiet"))
    if not server.state.starting:
        return start if detail else None
    age = units.duration(server.age_s)
    rest = ""
    if server.ready_eta_s is not None:
        # The end of the line tells what the detail's own end would.
        detail = detail.partition(", ready in ")[0]
        rest = f", {units.duration_range(*server.ready_eta_s)} left"
    start = joined("  ", Content.styled(plain(detail), "$quiet"))
    end = Content.styled(age.rjust(_AGE_WIDTH) + rest, "$quiet")
    progress = progress_of(server)
    if progress is not None:
        done, total = progress
        end = joined(bar(done / total, _PROGRESS_WIDTH, "$state-starting"), end)
    if start.cell_length + 1 + end.cell_length > width:
        # What the bar shows is in the words too.
        end = Content.styled(age + rest, "$quiet")
    return spread(start, end, width)


def _searchable(server: ServerView) -> str:
    return " ".join((server.name, server.host, server.state, server.profile, server.id)).lower()
