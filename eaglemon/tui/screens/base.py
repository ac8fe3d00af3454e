"""What the main screens share: status line, key line, and panels that become tabs when narrow."""

from collections.abc import Callable
from typing import Any, ClassVar

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from eaglemon.core.views import ServerView, Snapshot
from eaglemon.tui.actions import Scene
from eaglemon.tui.least_size import is_too_small, notice
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.key_line import KeyLine
from eaglemon.tui.widgets.status_line import StatusLine
from eaglemon.tui.widgets.tab_line import TabLine

_AROUND_BODY_ROWS = 4
"""Border, an empty row and the buttons."""


def keep_buttons_in_sight(screen: Screen[Any], body: Widget) -> None:
    """Let the middle of a dialog scroll where it has no room above the row of buttons."""
    body.styles.max_height = max(1, screen.size.height - _AROUND_BODY_ROWS)


class ConsoleScreen(Screen[None]):
    """A screen that draws snapshots.

    ``GROUPS`` names, for each tab, the ids of the panels it shows; on a wide terminal all are
    shown and switching moves the focus.
    """

    NAME: ClassVar[str]
    TABS: ClassVar[tuple[str, ...]]
    SHORT_TABS: ClassVar[tuple[str, ...]]
    GROUPS: ClassVar[tuple[tuple[str, ...], ...]]

    AUTO_FOCUS = ""
    """The tab that is shown says what has the focus."""
    SERVERS_TAB: ClassVar[int | None] = None
    """The tab, from 0, with the list in which a server is selected."""

    class SelectionChanged(Message):
        """Actions are about another server now."""

    class LaidOut(Message):
        """The screen has a new size, and what is drawn from now on is for that."""

    class CameToFront(Message):
        """The screen is in front and wants a picture."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._tab = 0
        self.first_picture: Callable[[], None] | None = None
        """Draws this screen: called once there is something to draw on, before it is laid out."""
        self._status = StatusLine(settings.zone)
        self._keys = KeyLine()
        self._tabs = TabLine(self.TABS, self.SHORT_TABS)

    def render(self) -> RenderableType:
        """Draw the background, or why there is nothing on it."""
        if is_too_small(*self.size):
            return notice(*self.size)
        return super().render()

    def compose(self) -> ComposeResult:
        """Lay out status, tabs, panels and keys."""
        yield self._status
        yield from self.compose_head()
        yield self._tabs
        yield from self.compose_panels()
        yield self._keys

    def compose_head(self) -> ComposeResult:
        """Yield what stays above the tabs."""
        yield from ()

    def compose_panels(self) -> ComposeResult:
        """Yield the panels."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Show the first tab; what is known is drawn before the first layout, not after it.

        Textual calls this after what subclasses have of the same name.
        """
        self.switch_tab(0)
        if self.first_picture is not None:
            self.first_picture()

    @property
    def columns(self) -> int:
        """Columns of the terminal, known before this screen is laid out."""
        return self.size.width or self.app.size.width

    def on_screen_resume(self) -> None:
        """Ask for a picture: none is drawn in the background."""
        self.post_message(self.CameToFront())

    def current_server(self) -> ServerView | None:
        """Return the server that actions are about."""
        raise NotImplementedError

    def current_host(self) -> str | None:
        """Return the name of the host that actions are about."""
        server = self.current_server()
        return None if server is None else server.host

    def complete(self, scene: Scene) -> Scene:
        """Return the scene with what only this screen knows."""
        return scene

    @property
    def hidden_servers_tab(self) -> int | None:
        """The tab with the list of servers, from 0, where that is not in sight."""
        wide = self.has_class("-wide")
        return None if wide or self._tab == self.SERVERS_TAB else self.SERVERS_TAB

    def on_resize(self) -> None:
        """What is in sight may be something else now, and with it what keys can do."""
        self.call_after_refresh(self.post_message, self.SelectionChanged())
        self.call_after_refresh(self.post_message, self.LaidOut())

    @property
    def filtered(self) -> bool:
        """A filter or search line is shown."""
        return False

    def facts(self) -> dict[str, Any]:
        """Return what this screen alone knows of the scene, by the names of its fields."""
        return {"filtered": self.filtered}

    def clear_filter(self) -> bool:
        """Remove a filter; return whether there was one."""
        return False

    def show(self, snapshot: Snapshot) -> None:
        """Draw ``snapshot``."""
        raise NotImplementedError

    def show_frame(self, snapshot: Snapshot, scene: Scene) -> None:
        """Draw status line and key line."""
        marks = " ".join(
            word for word, on in (("PAUSED", scene.paused), ("READ-ONLY", scene.read_only)) if on
        )
        self._status.show(snapshot, title=self._settings.title, marks=marks)
        self._keys.show(scene)

    def switch_tab(self, number: int) -> None:
        """Show the tab with this number, counted from 0 and around the end."""
        self._tab = number % len(self.GROUPS)
        self._tabs.show(self._tab)
        self.post_message(self.SelectionChanged())
        active = self.GROUPS[self._tab]
        for name in {name for group in self.GROUPS for name in group}:
            panel = self.query_one(f"#{name}")
            # What is not on the screen yet is styled when it comes there.
            panel.set_class(name not in active, "-other-tab", update=self.is_mounted)
        for name in active:
            panel = self.query_one(f"#{name}")
            target = self._focusable(panel)
            if target is not None:
                target.focus()
                return

    def step_tab(self, step: int) -> None:
        """Go to the next (1) or previous (-1) tab."""
        self.switch_tab(self._tab + step)

    def on_tab_line_switched(self, event: TabLine.Switched) -> None:
        """A tab was clicked."""
        self.switch_tab(event.number)

    def _focusable(self, panel: Widget) -> Widget | None:
        return panel if panel.can_focus else None
