"""One server: how far its start is, whether it is healthy, what speculation brings, its log."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget

from eaglemon.app.api import Eaglemon, Experiments
from eaglemon.core import units
from eaglemon.core.probe import ProbeProgress
from eaglemon.core.views import PhaseState, ServerView, Snapshot
from eaglemon.core.worth import StoredWorth, worth_of
from eaglemon.errors import EaglemonError
from eaglemon.tui import panels
from eaglemon.tui.acceptance_panels import accept_line, acceptance, compared, speeds
from eaglemon.tui.cause_panel import failure
from eaglemon.tui.columns import lines
from eaglemon.tui.scene import Scene
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.log_view import LogView
from eaglemon.tui.widgets.phase_track import PhaseTrack, track_lines
from eaglemon.tui.widgets.strip_chart import StripChart
from eaglemon.tui.widgets.text_panel import TextPanel, set_title

LOG_TAIL = 2_000
"""Lines of the log that are read when the screen opens."""

_BOTH_CHARTS_HEIGHT = 9
_AROUND_TITLE = 6
"""Columns of corners, lines and spaces around a title."""
_AROUND_CAUSE = 8
"""Rows of status, title, tabs and keys, and of the borders of start-up and cause."""
_MOST_DECISIVE = 8
_NOTE_LINES = 5
"""Lines of a probe's note on a terminal with rows for it."""
_SHARE_OF_PROBE = 0.45
"""Of the screen, at most, where panels are tabs; as in the style sheet."""


class ServerScreen(ConsoleScreen):
    """Everything about one server."""

    NAME = "server"
    START_UP, SPEED = 0, 2
    """Tabs with the course of a start or stop, and with throughput and probe."""
    TABS: ClassVar[tuple[str, ...]] = ("Start-up", "Accept", "Speed", "Log")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Start", "Acc", "Speed", "Log")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("startup", "cause", "stop"),
        ("measure", "accept", "worth"),
        ("measure", "speed", "bottom", "probe"),
        ("bottom", "log"),
    )

    def __init__(
        self,
        api: Eaglemon,
        server_id: str,
        settings: Settings,
        experiments: Experiments | None = None,
    ) -> None:
        super().__init__(settings)
        self._experiments = experiments
        self._stored: StoredWorth | None = None
        self._compared = TextPanel(id="worth", classes="panel -absent")
        self.server_id = server_id
        self._api = api
        self._server: ServerView | None = None
        self._servers: tuple[ServerView, ...] = ()
        self._now = 0.0
        self._title = TextPanel(id="server-title")
        self._startup = VerticalScroll(id="startup", classes="panel")
        self._measure = Horizontal(id="measure")
        self._speed = Vertical(id="speed", classes="panel")
        self._track = PhaseTrack()
        self._below_track = TextPanel(id="below-track")
        self._cause = TextPanel(id="cause", classes="panel")
        self._stop = TextPanel(id="stop", classes="panel")
        self._accept = TextPanel(id="accept", classes="panel")
        self._probe = TextPanel(id="probe", classes="panel")
        self._load = TextPanel(id="load")
        self._speed_chart = StripChart("$chart-speed", least_high=50.0, id="speed-chart")
        self._accept_caption = TextPanel(id="accept-caption")
        self._accept_chart = StripChart("$chart-accept", low=1.0, id="accept-chart")
        self._log = LogView(flush_s=settings.pace.log_s, id="log")
        self._log.add_class("panel")

    def compose_head(self) -> ComposeResult:
        """Yield the title line."""
        yield self._title

    def compose_panels(self) -> ComposeResult:
        """Yield the panels from the start-up down to the log."""
        with self._startup:
            yield self._track
            yield self._below_track
        yield self._cause
        yield self._stop
        with self._measure:
            yield self._accept
            with self._speed:
                yield self._load
                yield self._speed_chart
                yield self._accept_caption
                yield self._accept_chart
        yield self._compared
        with Horizontal(id="bottom"):
            yield self._probe
            yield self._log

    def on_mount(self) -> None:
        """Name the panels, follow the log, ask whether one started like this was compared."""
        # Switching tabs must show on a wide terminal too, where it moves the focus.
        self._accept.can_focus = self._speed.can_focus = True
        set_title(self._accept, "Acceptance ─ tokens per verify step")
        set_title(self._cause, "Why it failed")
        set_title(self._probe, "Probe")
        set_title(self._speed, "Throughput")
        set_title(self._compared, "Worth it?")
        self.run_worker(self._follow_log(), group="log", exclusive=True)
        if self._experiments is not None:
            self.run_worker(self._ask_worth(self._experiments), group="worth", exclusive=True)

    def show_frame(self, snapshot: Snapshot, scene: Scene) -> None:
        """Draw status and key line; a frozen picture has a log that stands still."""
        super().show_frame(snapshot, scene)
        self._log.freeze(frozen=scene.paused)

    def current_server(self) -> ServerView | None:
        """Return this screen's server as last shown."""
        return self._server

    def show(self, snapshot: Snapshot) -> None:
        """Draw this screen's server from ``snapshot``; one that is gone keeps its last picture."""
        server = snapshot.server(self.server_id)
        if server is None:
            return
        self._server, self._now, self._servers = server, snapshot.at, snapshot.servers
        self._draw(server)

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.call_after_refresh(self._draw_again)

    @property
    def shows_all(self) -> bool:
        """All panels are in sight at once."""
        return self.has_class("-wide") and self.has_class("-tall")

    def switch_tab(self, number: int) -> None:
        """Show a tab; the log takes all the room of its own."""
        super().switch_tab(number)
        self.set_class(self._tab == len(self.GROUPS) - 1, "-log-tab")

    async def _follow_log(self) -> None:
        try:
            async for batch in self._api.logs(self.server_id, follow=True, tail=LOG_TAIL):
                self._log.add(batch.lines)
        except EaglemonError as error:
            self._log.end(f"the log cannot be read: {error}")
        else:
            self._log.end()

    async def _ask_worth(self, experiments: Experiments) -> None:
        server = self._api.snapshot().server(self.server_id)
        if server is None:
            return
        try:
            self._stored = await experiments.worth(server)
        except EaglemonError as error:
            self.notify(f"earlier comparisons: {error}", severity="warning", markup=False)
        self._draw_again()

    def _draw_again(self) -> None:
        if self._server is not None:
            self._draw(self._server)

    def _draw(self, server: ServerView) -> None:
        width = self.columns
        self._title.show(panels.title_line(server, width - 2, self._settings.zone))
        inner = _inner_width(self._below_track, width - 4)
        phases = panels.shown_phases(server)
        self._track.show(phases)
        notes = panels.startup_notes(server, inner)
        health = [] if server.state.ended else [panels.health_line(server.health, inner)]
        self._below_track.show(lines([*health, *notes]))
        set_title(self._startup, _startup_title(server, width - _AROUND_TITLE))
        self._set(self._cause, server.cause is not None)
        if server.cause is not None:
            above = len(track_lines(phases, inner)) + len(health) + len(notes)
            self._cause.show(self._failure(server, width - 4, above))
        self._set(self._stop, server.stop is not None)
        if server.stop is not None:
            set_title(self._stop, "Stop")
            self._stop.show(panels.stop(server.stop, server.state, width - 4))
        # Where there is nothing to measure, the log gets the room.
        self._measure.set_class(not _measured(server), "-nothing")
        self._draw_measurements(server)
        self._set(self._probe, server.probe is not None)
        if server.probe is not None:
            inner = _inner_width(self._probe, width - 4)
            self._probe.show(self._probed(server.probe, inner))

    def _probed(self, progress: ProbeProgress, width: int) -> Content:
        """Return a probe, its notes whole where there are rows for them."""
        rows, least = self._probe.content_size.height, 1
        if not self.shows_all:
            # The panel grows with its text, up to a share of the screen.
            rows, least = int(self.size.height * _SHARE_OF_PROBE) - 2, 2
        most = _NOTE_LINES
        told = panels.probe(progress, width, most)
        while _rows(told) > rows and most > least:
            most -= 1
            told = panels.probe(progress, width, most)
        return told

    def _failure(self, server: ServerView, width: int, above: int) -> Content:
        """Return why a server failed, the decisive line whole where there are rows for it.

        ``above`` rows are wanted by the start-up.
        """
        free = (self.size.height or self.app.size.height) - above - _AROUND_CAUSE
        read_only = self._settings.read_only
        most = panels.DECISIVE_LINES
        told = failure(server, width, read_only=read_only, most=most)
        while _rows(told) < free and most < _MOST_DECISIVE:
            most += 1
            told = failure(server, width, read_only=read_only, most=most)
        return told

    def _draw_measurements(self, server: ServerView) -> None:
        width = self.columns
        inner = _inner_width(self._accept, width - 4)
        worth = worth_of(server, self._servers, {p.name: p.model for p in self._api.profiles()})
        told = acceptance(server.acceptance, server, inner, worth, stored=self._stored)
        self._accept.show(told)
        self._set(self._compared, self._stored is not None and not server.state.ended)
        if self._stored is not None:
            self._compared.show(compared(self._stored, width - 4, self._now))
        self._load.show(speeds(server, _inner_width(self._load, width - 4)))
        self._speed_chart.show(server.tok_s_history, self._now)
        ceiling = server.acceptance.ceiling if server.acceptance else None
        if ceiling is None and server.speculation is not None:
            ceiling = server.speculation.ceiling
        speculates = server.speculation is not None
        height = self._speed.content_size.height
        # One readable chart is better than two that are not; the figure has a tab of its own.
        both = speculates and (height == 0 or height >= _BOTH_CHARTS_HEIGHT)
        self._accept_caption.display = self._accept_chart.display = both
        self._accept_caption.show(accept_line(server.acceptance))
        self._accept_chart.show(
            server.accept_history, self._now, high=float(ceiling) if ceiling else None
        )

    @staticmethod
    def _set(panel: Widget, present: bool) -> None:  # noqa: FBT001
        panel.set_class(not present, "-absent")


def _inner_width(widget: Widget, otherwise: int) -> int:
    # A panel on a tab in the background has no size yet.
    return widget.content_size.width or otherwise


def _rows(content: Content) -> int:
    return content.plain.count("\n") + 1


def _measured(server: ServerView) -> bool:
    seen = server.acceptance or server.load or server.accept_history or server.tok_s_history
    return server.state.answering or bool(seen)


def _startup_title(server: ServerView, width: int) -> str:
    done = sum(p.state in {PhaseState.DONE, PhaseState.SKIPPED} for p in server.phases)
    text, usual = "Start-up", ""
    if server.usual_start_s is not None:
        usual = f", usually {units.duration(server.usual_start_s)}"
    if server.phases and server.ready_at is None:
        text += f" ─ {done} of {len(server.phases)} phases"
    if server.ready_at is not None:
        return f"{text} ─ took {units.duration(server.ready_at - server.launched_at)}{usual}"
    text = f"{text}, {units.duration(server.age_s)}{usual}"
    if server.ready_eta_s is not None and server.state.starting:
        source = f" ({server.eta_source})" if server.eta_source else ""
        text += f", {units.duration_range(*server.ready_eta_s)} left"
        if len(text + source) <= width:
            text += source
    return text
