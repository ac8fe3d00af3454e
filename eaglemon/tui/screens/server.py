"""One server: how far its start is, whether it is healthy, what speculation brings, its log."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from eaglemon.app.api import Eaglemon
from eaglemon.core import units
from eaglemon.core.views import PhaseState, ServerView, Snapshot
from eaglemon.errors import EaglemonError
from eaglemon.tui import panels
from eaglemon.tui.columns import lines
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.log_view import LogView
from eaglemon.tui.widgets.phase_track import PhaseTrack
from eaglemon.tui.widgets.strip_chart import StripChart

LOG_TAIL = 2_000
"""Lines of the log that are read when the screen opens."""

_BOTH_CHARTS_HEIGHT = 9


class ServerScreen(ConsoleScreen):
    """Everything about one server."""

    NAME = "server"
    TABS: ClassVar[tuple[str, ...]] = ("Start-up", "Accept", "Speed", "Log")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Start", "Acc", "Speed", "Log")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("startup", "cause", "stop"),
        ("measure", "accept"),
        ("measure", "speed", "bottom", "probe"),
        ("bottom", "log"),
    )

    def __init__(self, api: Eaglemon, server_id: str, settings: Settings) -> None:
        super().__init__(settings)
        self.server_id = server_id
        self._api = api
        self._server: ServerView | None = None
        self._now = 0.0
        self._title = Static(id="server-title")
        self._track = PhaseTrack()
        self._below_track = Static(id="below-track")
        self._cause = Static(id="cause", classes="panel")
        self._stop = Static(id="stop", classes="panel")
        self._accept = Static(id="accept", classes="panel")
        self._probe = Static(id="probe", classes="panel")
        self._load = Static(id="load")
        self._speed_chart = StripChart("$chart-speed", id="speed-chart")
        self._accept_caption = Static(id="accept-caption")
        self._accept_chart = StripChart("$chart-accept", low=1.0, id="accept-chart")
        self._log = LogView(flush_s=settings.pace.log_s, id="log")

    def compose_head(self) -> ComposeResult:
        """Yield the title line."""
        yield self._title

    def compose_panels(self) -> ComposeResult:
        """Yield the panels from the start-up down to the log."""
        with VerticalScroll(id="startup", classes="panel"):
            yield self._track
            yield self._below_track
        yield self._cause
        yield self._stop
        with Horizontal(id="measure"):
            yield self._accept
            with Vertical(id="speed", classes="panel"):
                yield self._load
                yield self._speed_chart
                yield self._accept_caption
                yield self._accept_chart
        with Horizontal(id="bottom"):
            yield self._probe
            yield self._log

    def on_mount(self) -> None:
        """Name the panels and follow the log."""
        super().on_mount()
        self._log.add_class("panel")
        # Switching tabs must show on a wide terminal too, where it moves the focus.
        self._accept.can_focus = self.query_one("#speed").can_focus = True
        self._accept.border_title = Content("Acceptance ─ tokens per verify step")
        self._cause.border_title = Content("Why it failed")
        self._probe.border_title = Content("Probe")
        self.query_one("#speed").border_title = Content("Throughput")
        self.run_worker(self._follow_log(), group="log", exclusive=True)

    def current_server(self) -> ServerView | None:
        """Return this screen's server as last shown."""
        return self._server

    def show(self, snapshot: Snapshot) -> None:
        """Draw this screen's server from ``snapshot``; one that is gone keeps its last picture."""
        server = snapshot.server(self.server_id)
        if server is None or not self.is_mounted:
            return
        self._server, self._now = server, snapshot.at
        self._draw(server)

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.call_after_refresh(self._draw_again)

    def switch_tab(self, number: int) -> None:
        """Show a tab; the log takes all the room of its own."""
        super().switch_tab(number)
        self.set_class(self._tab == len(self.GROUPS) - 1, "-log-tab")

    def show_log(self) -> bool:
        """Bring the log to the front; return whether it was not there before."""
        before = self._log.has_focus
        self.switch_tab(len(self.GROUPS) - 1)
        return not before

    async def _follow_log(self) -> None:
        try:
            async for batch in self._api.logs(self.server_id, follow=True, tail=LOG_TAIL):
                self._log.add(batch.lines, dropped=batch.dropped)
        except EaglemonError as error:
            self._log.end(f"the log cannot be read: {error}")
        else:
            self._log.end()

    def _draw_again(self) -> None:
        if self._server is not None:
            self._draw(self._server)

    def _draw(self, server: ServerView) -> None:
        width = self.size.width
        self._title.update(panels.title_line(server, width - 2, self._settings.zone))
        inner = _inner_width(self._below_track, width - 4)
        self._track.show(server.phases)
        notes = panels.startup_notes(server, inner)
        health = [] if server.state.ended else [panels.health_line(server.health, inner)]
        self._below_track.update(lines([*health, *notes]))
        self.query_one("#startup").border_title = Content(_startup_title(server))
        self._set(self._cause, server.cause is not None)
        if server.cause is not None:
            self._cause.update(panels.cause(server.cause, width - 4))
        self._set(self._stop, server.stop is not None)
        if server.stop is not None:
            self._stop.border_title = Content("Stop")
            self._stop.update(panels.stop(server.stop, server.state, width - 4))
        # Where there is nothing to measure, the log gets the room.
        self.query_one("#measure").set_class(not _measured(server), "-nothing")
        self._draw_measurements(server)
        self._set(self._probe, server.probe is not None)
        if server.probe is not None:
            self._probe.update(panels.probe(server.probe, _inner_width(self._probe, width - 4)))

    def _draw_measurements(self, server: ServerView) -> None:
        width = self.size.width
        inner = _inner_width(self._accept, width - 4)
        self._accept.update(panels.acceptance(server.acceptance, server, inner))
        self._load.update(panels.load_line(server.load, _inner_width(self._load, width - 4)))
        self._speed_chart.show(server.tok_s_history, self._now)
        ceiling = server.acceptance.ceiling if server.acceptance else None
        if ceiling is None and server.speculation is not None:
            ceiling = server.speculation.ceiling
        speculates = server.speculation is not None
        height = self.query_one("#speed").content_size.height
        # One readable chart is better than two that are not; the figure has a tab of its own.
        both = speculates and (height == 0 or height >= _BOTH_CHARTS_HEIGHT)
        self._accept_caption.display = self._accept_chart.display = both
        self._accept_caption.update(panels.accept_line(server.acceptance))
        self._accept_chart.show(
            server.accept_history, self._now, high=float(ceiling) if ceiling else None
        )

    @staticmethod
    def _set(panel: Widget, present: bool) -> None:  # noqa: FBT001
        panel.set_class(not present, "-absent")


def _inner_width(widget: Widget, otherwise: int) -> int:
    # A panel on a tab in the background has no size yet.
    return widget.content_size.width or otherwise


def _measured(server: ServerView) -> bool:
    seen = server.acceptance or server.load or server.accept_history or server.tok_s_history
    return server.state.answering or bool(seen)


def _startup_title(server: ServerView) -> str:
    done = sum(p.state in {PhaseState.DONE, PhaseState.SKIPPED} for p in server.phases)
    text = "Start-up"
    if server.phases and server.ready_at is None:
        text += f" ─ {done} of {len(server.phases)} phases"
    if server.ready_at is not None:
        return f"{text} ─ took {units.duration(server.ready_at - server.launched_at)}"
    return f"{text}, {units.duration(server.age_s)}"
