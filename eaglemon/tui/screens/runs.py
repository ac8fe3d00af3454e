"""What was measured: the stored experiments, one of them with its verdicts, or two compared."""

from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from eaglemon.app.api import Experiments
from eaglemon.core.experiment_records import ExperimentRecord, ExperimentSummary
from eaglemon.core.run_comparison import RunComparison
from eaglemon.core.run_comparison_text import comparison_lines
from eaglemon.core.verdict import Findings
from eaglemon.errors import EaglemonError
from eaglemon.tui import experiment_panels as panels
from eaglemon.tui.columns import joined, lines, plain, wrapped
from eaglemon.tui.scene import Scene
from eaglemon.tui.screens.listing import ListScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.row_list import Row, RowList
from eaglemon.tui.widgets.text_panel import set_title

SORTS = ("newest first", "by arms", "by outcome")


class RunList(RowList):
    """Stored experiments, with a sign before those that are marked."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "app.act('mark')", show=False)]

    def __init__(self, settings: Settings) -> None:
        super().__init__(id="runs")
        self._settings = settings
        self._runs: list[ExperimentSummary] | None = None
        self._wanted = ""
        self._error = ""
        self.marked: list[str] = []
        self.sort = 0
        self.reverse = False

    def show(self, runs: list[ExperimentSummary] | None, *, wanted: str, error: str = "") -> None:
        """Show the runs one of whose arms or hosts contains ``wanted``; ``None``: not read yet."""
        self._runs, self._wanted, self._error = runs, wanted.lower(), error
        self.rebuild()

    def build(self, width: int) -> tuple[Content | None, list[Row]]:
        """Return one row for each run."""
        rows = [
            Row(run.id, self._line(run, width))
            for run in self._sorted()
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

    def _line(self, run: ExperimentSummary, width: int) -> Content:
        sign = "◆ " if run.id in self.marked else "  "
        row = panels.run_row(run, width - len(sign), self._settings.zone)
        return joined(Content.styled(sign, "bold $accent"), row)

    def _sorted(self) -> list[ExperimentSummary]:
        runs = list(self._runs or ())
        if self.sort:
            runs.sort(key=lambda run: run.arms if self.sort == 1 else (run.ending,))
        return runs[::-1] if self.reverse else runs


class RunsScreen(ListScreen):
    """The list on the left; the selected run, or two marked ones compared, on the right."""

    NAME = "runs"
    TABS: ClassVar[tuple[str, ...]] = ("Runs", "Result")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Runs", "Result")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("runs",), ("result",))
    PANELS = "runs-panels"
    DETAILS = "result"
    FILTER = "part of an arm or host; esc clears it"

    def __init__(self, experiments: Experiments, settings: Settings) -> None:
        self._list = RunList(settings)
        super().__init__(self._list, settings)
        self._experiments = experiments
        self._runs: list[ExperimentSummary] | None = None
        self._shown: tuple[ExperimentRecord, Findings] | RunComparison | None = None

    def on_mount(self) -> None:
        """Read the history."""
        super().on_mount()
        self._name_list()
        set_title(self._details, "Result")
        self._list.show(None, wanted="")
        self.read_again()

    def current_run(self) -> str | None:
        """Return the run under the cursor."""
        key = self._list.cursor_key
        return None if key == "empty" else key

    def is_cut_off(self) -> bool:
        """Tell whether the run under the cursor has no end."""
        run = self.current_run()
        return any(one.id == run and one.ending == "cut off" for one in self._runs or ())

    def is_under_way(self) -> bool:
        """Tell whether a console is at the run under the cursor."""
        run = self.current_run()
        return any(one.id == run and one.under_way for one in self._runs or ())

    def complete(self, scene: Scene) -> Scene:
        """Return the scene with the run under the cursor."""
        return replace(
            scene,
            run=self.current_run(),
            cut_off=self.is_cut_off(),
            run_under_way=self.is_under_way(),
        )

    def refilter(self, wanted: str) -> None:
        """Show the runs one of whose arms or hosts contains ``wanted``."""
        self._list.show(self._runs, wanted=wanted)

    def read_again(self) -> None:
        """Read the history."""
        self.run_worker(self._read(), group="history", exclusive=True)

    def moved_to(self, key: str | None) -> None:
        """Show the run under the cursor, unless two are being compared."""
        if key is not None and key != "empty" and len(self._list.marked) < 2:
            self.run_worker(self._load(key), group="result", exclusive=True)

    def toggle_mark(self) -> str:
        """Mark the run under the cursor, or not any more; return what comes of it."""
        run, marked = self.current_run(), self._list.marked
        if run is None:
            return "no run is selected"
        if run in marked:
            marked.remove(run)
        else:
            # The third one takes the place of the first.
            self._list.marked = [*marked[-1:], run]
        self._list.rebuild()
        if len(self._list.marked) == 2:
            self.run_worker(self._compare(*self._list.marked), group="result", exclusive=True)
            return "two runs are compared"
        self.moved_to(run)
        return "mark another one to compare them" if self._list.marked else "no run is marked"

    def sort(self, step: int) -> str:
        """Sort by the next (1) or previous (-1) thing; return by what."""
        self._list.sort = (self._list.sort + step) % len(SORTS)
        return self._resort()

    def invert(self) -> str:
        """Turn the order round."""
        self._list.reverse = not self._list.reverse
        return self._resort()

    def clear_filter(self) -> bool:
        """Remove the filter and the marks; return whether there were any."""
        had = super().clear_filter()
        marked, self._list.marked = self._list.marked, []
        if marked:
            self._list.rebuild()
            self.moved_to(self._list.cursor_key)
        return had or bool(marked)

    def copied(self) -> tuple[str, str]:
        """Return what is shown on the right as text."""
        if self._shown is None:
            return "", ""
        what = "the comparison" if isinstance(self._shown, RunComparison) else "the figures"
        return "\n".join(line.plain.rstrip() for line in self._content(200)), what

    def draw(self) -> None:
        """Draw the run or the comparison."""
        width = self.details_width
        if self._shown is not None and width > 0:
            self.show_lines(lines(self._content(width)))

    def _content(self, width: int) -> list[Content]:
        if isinstance(self._shown, RunComparison):
            return [
                Content(row)
                for line in comparison_lines(self._shown)
                for row in ([line] if len(line) <= width else wrapped(line, width, 8))
            ]
        return [] if self._shown is None else panels.run_details(*self._shown, width)

    def _name_list(self) -> None:
        turned = ", turned round" if self._list.reverse else ""
        set_title(self._list, f"Runs ─ {SORTS[self._list.sort]}{turned}")

    def _resort(self) -> str:
        self._name_list()
        self._list.rebuild()
        return f"runs {SORTS[self._list.sort]}{', turned round' if self._list.reverse else ''}"

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
            self._take((record, await self._experiments.findings(record)), "Result")
        except EaglemonError as error:
            self._fail(error)

    async def _compare(self, one: str, other: str) -> None:
        self.show_lines(Content.styled("… comparing", "$quiet"))
        try:
            self._take(await self._experiments.compare(one, other), "Compared ─ esc ends it")
        except EaglemonError as error:
            self._fail(error)

    def _take(self, found: tuple[ExperimentRecord, Findings] | RunComparison, title: str) -> None:
        self._shown = found
        set_title(self._details, title)
        self.draw()

    def _fail(self, error: EaglemonError) -> None:
        self._shown = None
        self.show_lines(Content.styled(f"✗ {plain(str(error))}", "$state-failed"))
