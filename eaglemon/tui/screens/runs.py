"""What was measured: the stored experiments, and one of them with its table and verdicts."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from eaglemon.app.api import Experiments
from eaglemon.core.experiment_records import ExperimentRecord, ExperimentSummary
from eaglemon.core.verdict import Findings
from eaglemon.core.views import ServerView, Snapshot
from eaglemon.errors import EaglemonError
from eaglemon.tui import experiment_panels as panels
from eaglemon.tui.columns import lines, plain
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.row_list import Row, RowList
from eaglemon.tui.widgets.text_panel import TextPanel, set_title


class RunList(RowList):
    """Stored experiments, newest first."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(id="runs")
        self._settings = settings
        self._runs: list[ExperimentSummary] | None = None
        self._wanted = ""
        self._error = ""

    def show(self, runs: list[ExperimentSummary] | None, *, wanted: str, error: str = "") -> None:
        """Show the runs one of whose arms or hosts contains ``wanted``; ``None``: not read yet."""
        self._runs, self._wanted, self._error = runs, wanted.lower(), error
        self.rebuild()

    def build(self, width: int) -> tuple[Content | None, list[Row]]:
        """Return one row for each run."""
        rows = [
            Row(run.id, panels.run_row(run, width, self._settings.zone))
            for run in self._runs or ()
            if self._wanted in " ".join((run.id, *run.arms, *run.hosts)).lower()
        ]
        if rows:
            return None, rows
        text = self._error or "nothing was measured yet: compare two profiles with b"
        if self._wanted:
            text = f"nothing matches {self._wanted!r}"
        elif self._runs is None and not self._error:
            text = "reading the history"
        return None, [Row("empty", Content.styled(plain(text), "$quiet"), selectable=False)]


class RunsScreen(ConsoleScreen):
    """The list on the left, the selected run on the right."""

    NAME = "runs"
    TABS: ClassVar[tuple[str, ...]] = ("Runs", "Result")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Runs", "Result")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("runs",), ("result",))

    def __init__(self, experiments: Experiments, settings: Settings) -> None:
        super().__init__(settings)
        self._experiments = experiments
        self._runs: list[ExperimentSummary] | None = None
        self._shown: tuple[ExperimentRecord, Findings] | None = None
        self._list = RunList(settings)
        self._result = VerticalScroll(id="result", classes="panel")
        self._lines = TextPanel()
        self._filter = Input(placeholder="part of an arm or host; esc clears it", id="filter")

    def compose_panels(self) -> ComposeResult:
        """Yield list, result and filter."""
        with Horizontal(id="runs-panels"):
            yield self._list
            with self._result:
                yield self._lines
        yield self._filter

    def on_mount(self) -> None:
        """Read the history."""
        super().on_mount()
        self._list.add_class("panel")
        self._filter.display = False
        set_title(self._list, "Runs ─ newest first")
        set_title(self._result, "Result")
        self._list.show(None, wanted="")
        self.run_worker(self._read(), group="history", exclusive=True)

    @property
    def filtered(self) -> bool:
        """The filter line is shown."""
        return bool(self._filter.display)

    def current_server(self) -> ServerView | None:
        """Runs are of the past: there is none."""
        return None

    def show(self, snapshot: Snapshot) -> None:
        """Nothing here depends on what is now."""

    def ask_filter(self) -> None:
        """Let a filter be typed."""
        self._filter.display = True
        self._filter.focus()

    def clear_filter(self) -> bool:
        """Remove the filter; return whether there was one."""
        had = self.filtered
        self._filter.value = ""
        self._filter.display = False
        self._list.focus()
        return had

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self._list.show(self._runs, wanted=event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the list."""
        event.stop()
        self.switch_tab(0)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """Show the run under the cursor."""
        event.stop()
        if event.key is not None and event.key != "empty":
            self.run_worker(self._load(event.key), group="result", exclusive=True)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """On a narrow terminal the result has a tab of its own."""
        event.stop()
        self.switch_tab(1)

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.call_after_refresh(self._draw)

    async def _read(self) -> None:
        try:
            self._runs = await self._experiments.history()
        except EaglemonError as error:
            self._list.show(None, wanted="", error=str(error))
            return
        self._list.show(self._runs, wanted=self._filter.value)

    async def _load(self, run: str) -> None:
        try:
            record = await self._experiments.record(run)
            self._shown = (record, await self._experiments.findings(record))
        except EaglemonError as error:
            self._shown = None
            self._lines.show(Content.styled(f"✗ {plain(str(error))}", "$state-failed"))
            return
        self._draw()

    def _draw(self) -> None:
        if self._shown is None or not self.size.width:
            return
        wide = self.has_class("-wide")
        width = (self.size.width // 2 if wide else self.size.width) - 6
        self._lines.show(lines(panels.run_details(*self._shown, width)))
