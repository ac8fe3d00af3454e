"""The draft of a server: how it does when served, what its files say, what to try next."""

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content

from eaglemon.app.api import Eaglemon, LocalFiles
from eaglemon.core.draft_views import InspectView
from eaglemon.core.profiles import Profile
from eaglemon.core.views import ServerView, Snapshot
from eaglemon.errors import EaglemonError
from eaglemon.tui import draft_panels, panels
from eaglemon.tui.acceptance_panels import acceptance
from eaglemon.tui.columns import lines, wrapped
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.text_panel import TextPanel, set_title


class DraftScreen(ConsoleScreen):
    """Served acceptance on the left; files and next steps on the right."""

    NAME = "draft"
    TABS: ClassVar[tuple[str, ...]] = ("Served", "Files")
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Served", "Files")
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("served",), ("files",))

    def __init__(
        self, api: Eaglemon, files: LocalFiles | None, server_id: str, settings: Settings
    ) -> None:
        super().__init__(settings)
        self.server_id = server_id
        self._api = api
        self._files = files
        self._server = api.snapshot().server(server_id)
        self._inspected: InspectView | None = None
        self._error = ""
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
        super().on_mount()
        set_title(self._served, "As it is served ─ tokens per verify step")
        set_title(self._file_panel, "Draft")
        self.run_worker(self._inspect(), group="inspect", exclusive=True)

    def current_server(self) -> ServerView | None:
        """Return the server whose draft this is."""
        return self._server

    def show(self, snapshot: Snapshot) -> None:
        """Draw both panels."""
        self._server = snapshot.server(self.server_id) or self._server
        server = self._server
        if server is None or not self.size.width:
            return
        width = (self.size.width // 2 if self.has_class("-wide") else self.size.width) - 6
        self._title.show(panels.title_line(server, self.size.width - 2, self._settings.zone))
        rows: list[Content | str] = [acceptance(server.acceptance, server, width)]
        rows += draft_panels.conditional_lines(server, width)
        self._served_lines.show(lines(rows))
        self._file_lines.show(lines(self._about(server, width)))

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.call_after_refresh(lambda: self.show(self._api.snapshot()))

    def _profile(self) -> Profile | None:
        name = self._server.profile if self._server is not None else ""
        return next((p for p in self._api.profiles() if p.name == name), None)

    def _about(self, server: ServerView, width: int) -> list[Content]:
        profile = self._profile()
        rows = draft_panels.settings_lines(server, profile, width)
        if self._error:
            rows += [
                Content.styled(line, "$state-warning") for line in wrapped(self._error, width, 6)
            ]
        elif self._inspected is not None:
            rows += draft_panels.inspect_lines(self._inspected, width)
        else:
            rows.append(Content.styled("… reading its files", "$quiet"))
        return [*rows, Content(""), *draft_panels.next_steps(server, profile, width)]

    async def _inspect(self) -> None:
        profile = self._profile()
        if profile is None or profile.draft is None or self._files is None:
            self._error = "the profile of this server is not known here, so its draft is not either"
            return
        try:
            self._inspected = await asyncio.to_thread(
                self._files.inspect_draft, profile.draft, profile.model
            )
        except EaglemonError as error:
            self._error = str(error)
        self.show(self._api.snapshot())
