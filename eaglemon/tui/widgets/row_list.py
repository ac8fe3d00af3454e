"""A list of one-line rows with a cursor, drawn line by line from prebuilt content.

Rows are known by key: the cursor stays on its row when rows come and go, and only lines that
changed are drawn again. Row texts are never read as markup.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual

_HIDDEN_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One line; ``key`` is unique in the list."""

    key: str
    content: Content
    selectable: bool = True


class RowList(ScrollView, can_focus=True):
    """Rows with a cursor; subclasses say in ``build`` what the rows are at a width."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"row-list--cursor", "row-list--header"}
    DEFAULT_CSS = """
    RowList {
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        & > .row-list--header { color: $quiet; }
        & > .row-list--cursor { background: $cursor 50%; }
        &:focus > .row-list--cursor { background: $cursor; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("g,home", "edge(-1)", show=False),
        Binding("G,end", "edge(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Moved(Message):
        """The cursor went to another row, or rows changed under it."""

        def __init__(self, row_list: "RowList", key: str | None) -> None:
            super().__init__()
            self.row_list = row_list
            self.key = key

    class Chosen(Message):
        """A row was chosen with enter or a click on the cursor's row."""

        def __init__(self, row_list: "RowList", key: str) -> None:
            super().__init__()
            self.row_list = row_list
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id)
        self._header: Content | None = None
        self._rows: tuple[Row, ...] = ()
        self._cursor: str | None = None

    def build(self, width: int) -> tuple[Content | None, Sequence[Row]]:
        """Return header and rows for ``width`` cells."""
        raise NotImplementedError

    @property
    def cursor_key(self) -> str | None:
        """Key of the row under the cursor, ``None`` without selectable rows."""
        return self._cursor

    def select(self, key: str) -> None:
        """Put the cursor on the row with this key, if there is one."""
        if any(row.key == key and row.selectable for row in self._rows):
            self._set_cursor(key)

    def rebuild(self) -> None:
        """Build the rows again and draw those that differ."""
        # Hidden lists have no width yet, but actions need to know what is in them.
        width = self._width or _HIDDEN_WIDTH
        header, rows = self.build(width)
        before, before_header = self._rows, self._header
        self._header, self._rows = header, tuple(rows)
        self._keep_cursor(before)
        height = len(self._rows) + self._header_height
        if self.virtual_size != Size(width, height) or header != before_header:
            self.virtual_size = Size(width, height)
            self.refresh()
            return
        for index, (old, new) in enumerate(zip(before, self._rows, strict=True)):
            if old != new:
                self._refresh_row(index)

    def render_line(self, y: int) -> Strip:
        """Draw one visible line."""
        width = self._width
        if self._header is not None and y == 0:
            return self._strip(self._header, "row-list--header", width)
        index = self.scroll_offset.y + y - self._header_height
        if not 0 <= index < len(self._rows):
            return Strip.blank(width, self.rich_style)
        row = self._rows[index]
        component = "row-list--cursor" if row.key == self._cursor else None
        return self._strip(row.content, component, width)

    def on_resize(self) -> None:
        """Rows depend on the width."""
        self.rebuild()
        self._scroll_to_cursor()

    def on_focus(self) -> None:
        """The cursor is brighter with the focus."""
        self.refresh()

    def on_blur(self) -> None:
        """The cursor is dimmer without the focus."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a second click there chooses."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        index = self.scroll_offset.y + offset.y - self._header_height
        if 0 <= index < len(self._rows) and self._rows[index].selectable:
            key = self._rows[index].key
            if key == self._cursor:
                self.post_message(self.Chosen(self, key))
            self._set_cursor(key)

    def action_move(self, step: int) -> None:
        """Go one selectable row up or down."""
        self._go(self._position() + step)

    def action_page(self, direction: int) -> None:
        """Go a page up or down."""
        self._go(self._position() + direction * max(1, self.size.height - 2))

    def action_edge(self, direction: int) -> None:
        """Go to the first or last row."""
        self._go(0 if direction < 0 else len(self._rows))

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        if self._cursor is not None:
            self.post_message(self.Chosen(self, self._cursor))

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _header_height(self) -> int:
        return 0 if self._header is None else 1

    def _selectable(self) -> list[str]:
        return [row.key for row in self._rows if row.selectable]

    def _position(self) -> int:
        keys = self._selectable()
        return keys.index(self._cursor) if self._cursor in keys else 0

    def _go(self, position: int) -> None:
        keys = self._selectable()
        if keys:
            self._set_cursor(keys[max(0, min(position, len(keys) - 1))])

    def _keep_cursor(self, before: tuple[Row, ...]) -> None:
        keys = self._selectable()
        if self._cursor in keys:
            return
        # The row is gone: its neighbour takes over, so that a key press never jumps to the top.
        old = [row.key for row in before if row.selectable]
        place = old.index(self._cursor) if self._cursor in old else 0
        neighbours = [key for key in [*old[place:], *reversed(old[:place]), *keys] if key in keys]
        self._cursor = neighbours[0] if neighbours else None
        self.post_message(self.Moved(self, self._cursor))

    def _set_cursor(self, key: str) -> None:
        if key == self._cursor:
            return
        for index, row in enumerate(self._rows):
            if row.key in {key, self._cursor}:
                self._refresh_row(index)
        self._cursor = key
        self._scroll_to_cursor()
        self.post_message(self.Moved(self, key))

    def _scroll_to_cursor(self) -> None:
        for index, row in enumerate(self._rows):
            if row.key == self._cursor:
                top, page = self.scroll_offset.y, self.size.height - self._header_height
                if index < top:
                    self.scroll_to(y=index, animate=False)
                elif index >= top + page:
                    self.scroll_to(y=index - page + 1, animate=False)
                return

    def _refresh_row(self, index: int) -> None:
        y = index + self._header_height - self.scroll_offset.y
        if 0 <= y < self.size.height:
            self.refresh(Region(0, y, self._width, 1))

    def _strip(self, content: Content, component: str | None, width: int) -> Strip:
        names = () if component is None else (component,)
        style = self.get_visual_style(*names)
        if self.get_component_styles(*names).text_style.reverse:
            # Textual leaves that out.
            style += Style(reverse=True)
        cut = content.truncate(width, ellipsis=True)
        strips = Visual.to_strips(self, cut, width, 1, style, apply_selection=False)
        return strips[0].adjust_cell_length(width, style.rich_style)
