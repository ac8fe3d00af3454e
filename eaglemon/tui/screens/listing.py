"""What screens with a filtered list and the details of one row share."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from eaglemon.core.views import ServerView, Snapshot
from eaglemon.tui.screens.base import ConsoleScreen
from eaglemon.tui.settings import Settings
from eaglemon.tui.widgets.row_list import RowList
from eaglemon.tui.widgets.text_panel import TextPanel

_AROUND_DETAILS = 6
"""Columns of borders and padding."""


class ListScreen(ConsoleScreen):
    """The list on the left, the row under its cursor on the right; tabs when narrow."""

    PANELS: ClassVar[str]
    """Id of the two panels together."""
    DETAILS: ClassVar[str]
    """Id of the panel on the right."""
    FILTER: ClassVar[str]
    """What may be typed to filter."""

    def __init__(self, rows: RowList, settings: Settings) -> None:
        super().__init__(settings)
        self._rows = rows
        self._rows.add_class("panel")
        self._details = VerticalScroll(id=self.DETAILS, classes="panel")
        self._lines = TextPanel()
        self._filter = Input(placeholder=self.FILTER, id="filter")

    def compose_panels(self) -> ComposeResult:
        """Yield list, details and filter."""
        with Horizontal(id=self.PANELS):
            yield self._rows
            with self._details:
                yield self._lines
        yield self._filter

    def on_mount(self) -> None:
        """Hide the filter."""
        self._filter.display = False

    @property
    def filtered(self) -> bool:
        """The filter line is shown."""
        return bool(self._filter.display)

    @property
    def details_width(self) -> int:
        """Columns of a line of the details."""
        width = self.columns
        return (width // 2 if self.has_class("-wide") else width) - _AROUND_DETAILS

    def current_server(self) -> ServerView | None:
        """Rows here are not servers."""
        return None

    def show(self, snapshot: Snapshot) -> None:
        """Nothing here depends on what is now."""

    def refilter(self, wanted: str) -> None:
        """Show the rows that contain ``wanted``."""
        raise NotImplementedError

    def moved_to(self, key: str | None) -> None:
        """Show the row with this key."""
        raise NotImplementedError

    def draw(self) -> None:
        """Draw the details again, at the width of now."""
        raise NotImplementedError

    def copied(self) -> tuple[str, str]:
        """Return the text to copy, and what it is."""
        raise NotImplementedError

    def show_lines(self, content: Content) -> None:
        """Show the details."""
        self._lines.show(content)

    def ask_filter(self) -> None:
        """Let a filter be typed."""
        self._filter.display = True
        self._filter.focus()

    def clear_filter(self) -> bool:
        """Remove the filter; return whether there was one."""
        had = self.filtered
        self._filter.value = ""
        self._filter.display = False
        self._rows.focus()
        return had

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self.refilter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the list."""
        event.stop()
        self.switch_tab(0)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """Show what is under the cursor."""
        event.stop()
        self.moved_to(event.key)
        self.post_message(self.SelectionChanged())

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Go to the details: a tab of their own where it is narrow, else the panel to scroll."""
        event.stop()
        self.switch_tab(1)

    def on_resize(self) -> None:
        """Lines are made for a width."""
        super().on_resize()
        self.call_after_refresh(self.draw)
