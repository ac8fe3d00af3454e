"""The whole screen for one server's log: search, filter, follow, jump to the line that decides."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Input

from eaglemon.app.api import Eaglemon
from eaglemon.core.views import ServerView, Snapshot
from eaglemon.errors import EaglemonError
from eaglemon.tui import panels
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.log_view import MAX_LINES, LogView
from eaglemon.tui.widgets.text_panel import TextPanel


class LogScreen(ConsoleScreen):
    """The last lines of a log, and new ones as they come."""

    NAME = "log"
    TABS: ClassVar[tuple[str, ...]] = ("Log",)
    SHORT_TABS: ClassVar[tuple[str, ...]] = ("Log",)
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]] = (("log",),)

    def __init__(self, api: Eaglemon, server_id: str, settings: Settings) -> None:
        super().__init__(settings)
        self.server_id = server_id
        self._api = api
        self._server = api.snapshot().server(server_id)
        self._title = TextPanel(id="server-title")
        self._log = LogView(flush_s=settings.pace.log_s, id="log")
        self._prompt = Input(id="prompt")
        self._filters = False

    def compose_head(self) -> ComposeResult:
        """Yield the title line."""
        yield self._title

    def compose_panels(self) -> ComposeResult:
        """Yield the log and the line for a text to look for."""
        yield self._log
        yield self._prompt

    def on_mount(self) -> None:
        """Follow the log."""
        super().on_mount()
        self._log.add_class("panel")
        self._prompt.display = False
        self.run_worker(self._follow(), group="log", exclusive=True)

    @property
    def filtered(self) -> bool:
        """A line for a text is shown."""
        return bool(self._prompt.display)

    def current_server(self) -> ServerView | None:
        """Return the server whose log this is."""
        return self._server

    def show(self, snapshot: Snapshot) -> None:
        """Draw the title; the log draws itself."""
        self._server = snapshot.server(self.server_id) or self._server
        if self._server is not None and self.size.width:
            width = self.size.width - 2
            self._title.show(panels.title_line(self._server, width, self._settings.zone))

    def ask(self, *, filters: bool) -> None:
        """Let a text be typed: to search for, or to show only lines that contain it."""
        self._filters = filters
        self._prompt.value = ""
        self._prompt.placeholder = (
            "show only lines with this text; enter keeps it, esc shows all"
            if filters
            else "text to look for, upwards; n and N go on; capitals count if typed"
        )
        self._prompt.display = True
        self._prompt.focus()

    def clear_filter(self) -> bool:
        """Close the prompt and show all lines; return whether there was anything to clear."""
        had = self.filtered or bool(self._log.only)
        self._prompt.display = False
        if self._log.only:
            self._log.show_only("")
        self._log.focus()
        return had

    def step_hit(self, step: int) -> str:
        """Go to the next or previous hit and return how that went."""
        return self._log.search_again(step)

    def show_decisive(self) -> bool:
        """Go to the line that decides; return whether it is among the lines kept."""
        cause = self._server.cause if self._server else None
        return bool(cause and cause.decisive_line and self._log.find_line(cause.decisive_line))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search or filter, and go back to the log."""
        event.stop()
        text = event.value
        self._prompt.display = False
        self._log.focus()
        if self._filters:
            self._log.show_only(text)
        elif text:
            self.notify(self._log.search(text), markup=False)

    async def _follow(self) -> None:
        try:
            async for batch in self._api.logs(self.server_id, follow=True, tail=MAX_LINES):
                self._log.add(batch.lines, dropped=batch.dropped)
        except EaglemonError as error:
            self._log.end(f"the log cannot be read: {error}")
        else:
            self._log.end()
