"""An experiment while it runs: its course, a live table with intervals, the verdict so far."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from eaglemon.app.api import Experiments
from eaglemon.core.experiment_views import ExperimentView
from eaglemon.core.views import ServerView, Snapshot
from eaglemon.tui import experiment_panels as panels
from eaglemon.tui.columns import lines
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.text_panel import TextPanel, set_title

COPIED_WIDTH = 160


class ExperimentScreen(ConsoleScreen):
    """One experiment of this console."""

    NAME = "experiment"
    TABS: ClassVar[tuple[str, ...]] = ("Course", "Figures")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Course", "Fig")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("course",), ("figures",))

    def __init__(self, experiments: Experiments, experiment: str, settings: Settings) -> None:
        super().__init__(settings)
        self.experiment = experiment
        self._experiments = experiments
        self._server: ServerView | None = None
        self._snapshot = Snapshot(at=0.0)
        self._view: ExperimentView | None = None
        self._course = VerticalScroll(id="course", classes="panel")
        self._course_lines = TextPanel()
        self._figures = VerticalScroll(id="figures", classes="panel")
        self._figure_lines = TextPanel()

    def compose_panels(self) -> ComposeResult:
        """Yield the course above the figures."""
        with self._course:
            yield self._course_lines
        with self._figures:
            yield self._figure_lines

    def on_mount(self) -> None:
        """Name the panels."""
        set_title(self._course, f"Experiment {self.experiment}")
        set_title(self._figures, "Figures ─ ratios are to the first arm, paired by prompt")

    def current_server(self) -> ServerView | None:
        """Return the server that is started or measured now."""
        return self._server

    def show(self, snapshot: Snapshot) -> None:
        """Draw the experiment as it stands."""
        if snapshot is not self._snapshot or self._view is None:
            # The same snapshot again means a picture that is frozen, or drawn for another width.
            self._view = self._experiments.view(self.experiment)
        self._snapshot, view = snapshot, self._view
        width = self.size.width - 6
        if width <= 0:
            return
        if view is None:
            self._course_lines.show(Content.styled("it begins", "$quiet"))
            return
        lane = next((lane for lane in view.lanes if lane.server_id), None)
        server_id = lane.server_id if lane is not None else None
        self._server = snapshot.server(server_id) if server_id else None
        self._course_lines.show(lines(panels.course(view, snapshot, width)))
        self._figure_lines.show(lines(self._figure_rows(view, width)))

    def copied(self) -> tuple[str, str]:
        """Return course and figures as text."""
        view = self._view
        if view is None:
            return "", ""
        rows = panels.course(view, self._snapshot, COPIED_WIDTH)
        rows += self._figure_rows(view, COPIED_WIDTH)
        return "\n".join(row.plain.rstrip() for row in rows), "course and figures"

    @staticmethod
    def _figure_rows(view: ExperimentView, width: int) -> list[Content]:
        names = [arm.name for arm in view.plan.arms]
        rows = panels.figures_table(names, view.findings, view, width)
        rows += [Content(""), *panels.ratio_chart(names, view.findings, width)]
        rows += [Content(""), *panels.verdict_lines(names, view.findings, view, width)]
        return rows

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.call_after_refresh(self.show, self._snapshot)
