"""The draft of a server: how it does when served, how it is wired, what its files say."""

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content

from eaglemon.app.api import Drafts, Eaglemon
from eaglemon.core import units
from eaglemon.core.draft_verdict import DraftReport
from eaglemon.core.draft_views import CheckStage
from eaglemon.core.probe import ProbeFigures
from eaglemon.core.profiles import Profile
from eaglemon.core.views import ServerView, Snapshot
from eaglemon.errors import EaglemonError
from eaglemon.tui import draft_panels, panels, wiring_panels
from eaglemon.tui.acceptance_panels import acceptance
from eaglemon.tui.columns import lines, wrapped
from eaglemon.tui.draft_words import in_keys
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.text_panel import TextPanel, set_title

_NO_VERSION = (
    "• the server tells no version of its engine now: judged by the releases that are known"
)

_OLD = "▲ this is from before the last probe: check it again with D"


def stage_words(stage: CheckStage, since: float, now: float) -> str:
    """Return what a check is at, with how long that takes yet where it can be counted."""
    if stage.of is None:
        return stage.doing
    told = f"{stage.doing} {stage.done}/{stage.of}"
    if stage.done < 1 or now <= since:
        return told
    left_s = (now - since) / stage.done * (stage.of - stage.done)
    return f"{told}, about {units.duration(left_s)} left of that"


class DraftScreen(ConsoleScreen):
    """Served and offline steps on the left; verdict, wiring and files on the right."""

    NAME = "draft"
    TABS: ClassVar[tuple[str, ...]] = ("Steps", "Wiring and files")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Steps", "Wiring")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("served",), ("files",))

    def __init__(
        self, api: Eaglemon, drafts: Drafts | None, server_id: str, settings: Settings
    ) -> None:
        super().__init__(settings)
        self.server_id = server_id
        self._api = api
        self._drafts = drafts
        self._server = api.snapshot().server(server_id)
        self._report: DraftReport | None = None
        self._error = ""
        self._working: tuple[str, float] | None = ("files read on its host", 0.0)
        self._judged: ProbeFigures | None = None
        """What the last probe had told when the draft was looked at."""
        self._stage: tuple[CheckStage, float] | None = None
        """What a check is at, and since when it does that."""
        self._title = TextPanel(id="server-title")
        self._served = VerticalScroll(id="served", classes="panel")
        self._served_lines = TextPanel()
        self._file_panel = VerticalScroll(id="files", classes="panel")
        self._file_lines = TextPanel()

    def compose_head(self) -> ComposeResult:
        """Yield the title line."""
        yield self._title

    def compose_panels(self) -> ComposeResult:
        """Yield what is served and what is on file."""
        with Horizontal(id="draft-panels"):
            with self._served:
                yield self._served_lines
            with self._file_panel:
                yield self._file_lines

    def on_mount(self) -> None:
        """Name the panels and look at the files."""
        set_title(self._served, "As it is served ─ tokens per verify step")
        self.judge(capture=False)

    def current_server(self) -> ServerView | None:
        """Return the server whose draft this is."""
        return self._server

    @property
    def trained(self) -> tuple[int, ...] | None:
        """The layers that the draft was trained on, as a check found."""
        return None if self._report is None else self._report.diagnosis.trained

    def facts(self) -> dict[str, Any]:
        """Return why the draft cannot be checked or rewired now."""
        return {**super().facts(), "no_check": self._no_check(), "no_fix": self._no_fix()}

    def judge(self, *, capture: bool) -> None:
        """Diagnose the draft on its host; with ``capture`` it is run there too."""
        doing = "being checked" if capture else "files read on its host"
        self._working = (doing, self._api.snapshot().at)
        self._judged = self._probed()
        self._error, self._stage = "", None
        self.run_worker(self._judge(capture=capture), group="judge", exclusive=True)
        self.post_message(self.SelectionChanged())

    def show(self, snapshot: Snapshot) -> None:
        """Draw both panels."""
        self._server = snapshot.server(self.server_id) or self._server
        server = self._server
        if server is None:
            return
        report = self._report
        checked = report is None or report.checks or report.diagnosis.offline
        # Only files are read for it; what a check has found would be lost.
        if self._outdated() and not checked:
            self.judge(capture=False)
        width = (self.columns // 2 if self.has_class("-wide") else self.columns) - 6
        self._title.show(panels.title_line(server, self.columns - 2, self._settings.zone))
        rows: list[Content | str] = []
        if not self.has_class("-wide"):
            # The other tab, where the draft is told of, is out of sight.
            rows += self._course(snapshot, width)
        rows.append(acceptance(server.acceptance, server, width, short=True))
        rows += draft_panels.conditional_lines(server, width)
        if self._report is not None:
            rows += wiring_panels.step_lines(self._report.diagnosis, width)
        self._served_lines.show(lines(rows))
        set_title(self._file_panel, f"Draft{self._progress(snapshot)}")
        self._file_lines.show(lines(self._about(server, width)))

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.call_after_refresh(lambda: self.show(self._api.snapshot()))

    def _progress(self, snapshot: Snapshot) -> str:
        if self._working is None:
            return ""
        doing, began = self._working
        took = units.duration(max(0.0, snapshot.at - began)) if began else ""
        if self._stage is None:
            return f" ─ {doing} {took}".rstrip()
        return f" ─ {doing}: {stage_words(*self._stage, snapshot.at)}, {took} so far"

    def _course(self, snapshot: Snapshot, width: int) -> list[Content]:
        if self._working is not None and self._report is not None:
            told = f"Draft{self._progress(snapshot)}"
            return [Content.styled(line, "$quiet") for line in wrapped(told, width)] + [Content("")]
        return self._failure(width)

    def _failure(self, width: int) -> list[Content]:
        if not self._error:
            return []
        told = wrapped(self._error, width, 6)
        return [Content.styled(line, "$state-warning") for line in told] + [Content("")]

    def _at_stage(self, stage: CheckStage) -> None:
        same = self._stage is not None and self._stage[0].doing == stage.doing
        since = self._stage[1] if self._stage and same else self._api.snapshot().at
        self._stage = stage, since

    def _profile(self) -> Profile | None:
        name = self._server.profile if self._server is not None else ""
        return next((p for p in self._api.profiles() if p.name == name), None)

    def _about(self, server: ServerView, width: int) -> list[Content]:
        profile = self._profile()
        rows: list[Content] = []
        report = self._report
        rows += self._failure(width)
        if self._error and report is None:
            rows += draft_panels.next_steps(server, profile, width)
        elif report is None:
            rows.append(Content.styled("… reading its files on the host", "$quiet"))
        else:
            if self._working is not None:
                before = "… being looked at; this is what was known before"
                rows += [Content.styled(line, "$quiet") for line in wrapped(before, width)]
            elif self._outdated():
                rows += [Content.styled(line, "$state-warning") for line in wrapped(_OLD, width)]
            rows += wiring_panels.verdict_lines(report.diagnosis, width)
            for warning in report.warnings:
                rows += [
                    Content.styled(line, "$state-warning")
                    for line in wrapped(f"▲ {warning}", width)
                ]
            if report.engine_version is None:
                rows += [Content.styled(line, "$quiet") for line in wrapped(_NO_VERSION, width)]
            rows += [Content(""), *wiring_panels.wiring_lines(report.diagnosis, width)]
        rows += [Content(""), Content.styled("Files", "bold")]
        rows += draft_panels.settings_lines(server, profile, width)
        if report is not None:
            rows += draft_panels.inspect_lines(report.inspect, width)
        return rows

    def _probed(self) -> ProbeFigures | None:
        """Return what the last probe that has ended tells, ``None`` without one."""
        probe = self._server.probe if self._server is not None else None
        return probe.figures if probe is not None and probe.state == "done" else None

    def _outdated(self) -> bool:
        """Tell whether a probe has ended since the draft was looked at."""
        probed = self._probed()
        return self._working is None and probed is not None and probed != self._judged

    def _no_check(self) -> str | None:
        if self._drafts is None:
            return "this console cannot look at drafts: use eaglemon draft"
        if self._working is not None:
            return f"the draft is {self._working[0]}: wait for it"
        return None

    def _no_fix(self) -> str | None:
        missing = self._no_check()
        if missing is not None or self._report is None:
            return missing or "nothing is known of the draft yet"
        found = self._report.diagnosis
        if found.trained is None:
            return "what the draft was trained on is not known yet: check it with D"
        if found.trained == found.captured:
            return "the draft gets what it was trained on: there is nothing to rewire"
        return None

    async def _judge(self, *, capture: bool) -> None:
        try:
            if self._drafts is None:
                self._error = "this console cannot look at drafts: use eaglemon draft"
            else:
                self._report = await self._drafts.diagnose(
                    self.server_id, capture=capture, told=self._at_stage
                )
        except EaglemonError as error:
            self._error = in_keys(str(error))
        finally:
            self._working = self._stage = None
        self.show(self._api.snapshot())
        self.post_message(self.SelectionChanged())
