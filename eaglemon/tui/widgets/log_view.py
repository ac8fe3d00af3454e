"""A server's log: bounded, fed in batches, following its end until scrolled away; with search."""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer

from eaglemon.core import units
from eaglemon.tui.columns import plain
from eaglemon.tui.log_buffer import LogBuffer, clean
from eaglemon.tui.log_hits import Hits
from eaglemon.tui.widgets.text_panel import set_title

__all__ = ["MAX_LINES", "LogView", "clean"]

MAX_LINES = 20_000
MOST_COPIED = 2_000
"""Terminals take only so much into the clipboard."""
_AROUND_TITLE = 6
"""Columns of corners, lines and spaces around a title."""


class LogView(ScrollView, can_focus=True):
    """Lines are collected and drawn a few times a second, however fast they come."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log-view--hit", "log-view--place"}
    DEFAULT_CSS = """
    LogView {
        & > .log-view--hit { text-style: reverse bold; }
        & > .log-view--place { background: $cursor; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", show=False),
        Binding("down,j", "scroll_down", show=False),
        Binding("g,home", "scroll_home", show=False),
        Binding("G,end", "follow", show=False),
    ]

    def __init__(self, *, flush_s: float = 0.1, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._buffer = LogBuffer(MAX_LINES)
        self._flush_s = flush_s
        self._waiting: deque[str] = deque(maxlen=MAX_LINES)
        self._unseen = 0
        self._timer: Timer | None = None
        self._ended = False
        self._frozen = False
        self._following = True
        self._hits = Hits("")
        self._place: int | None = None
        self._anchor: int | None = None
        self._anchor_top = 0
        self._drag: tuple[int, int] | None = None
        """Rows that were dragged over with the mouse."""
        self._pressed: int | None = None

    @property
    def lines(self) -> list[str]:
        """Return the lines that can be scrolled to."""
        return self._buffer.shown

    @property
    def only(self) -> str:
        """The text that shown lines contain; empty shows all."""
        return self._buffer.only

    @property
    def line_count(self) -> int:
        """Number of lines kept."""
        return len(self._buffer.lines)

    def on_mount(self) -> None:
        """Say that nothing has come yet."""
        self._tell()

    def add(self, lines: Sequence[str]) -> None:
        """Take lines."""
        self._waiting.extend(lines)
        self._unseen += len(lines)
        if self._frozen:
            return
        if self._flush_s <= 0:
            self.flush()
        elif self._timer is None:
            self._timer = self.set_timer(self._flush_s, self.flush)

    def freeze(self, *, frozen: bool) -> None:
        """Keep the picture while lines are collected, or draw what has come meanwhile."""
        if frozen != self._frozen:
            self._frozen = frozen
            self.flush()

    def end(self, reason: str = "") -> None:
        """Say that no more lines will come, and why where that is an error."""
        if reason:
            self._waiting.append(plain(reason))
        self._ended = True
        self.flush()

    def flush(self) -> None:
        """Draw what has been collected."""
        self._timer = None
        if self._frozen:
            return
        if self._waiting:
            # Cleaned here, so that lines which nobody will see cost nothing.
            batch = [clean(line) for line in self._waiting]
            self._waiting.clear()
            gone = self._buffer.add(batch)
            self._buffer.total += max(0, self._unseen - len(batch))
            self._unseen = 0
            self._lay_out()
            self._shift(-gone)
            self._keep_end()
            # The layout that new lines bring may move the end once more.
            self.call_after_refresh(self._keep_end)
            self.refresh()
        self._tell()

    def show_only(self, text: str) -> None:
        """Show only lines that contain ``text``; empty shows all again."""
        self._buffer.filter(text)
        self._place = self._anchor = self._drag = None
        self._hits = Hits("")
        self._lay_out()
        self.action_follow()
        self.refresh()

    def search(self, text: str, *, step: int = -1) -> str:
        """Go to the next (1) or previous (-1) line with ``text``; return how that went."""
        if text != self._hits.text:
            self._place = None
            self._hits = self._new_search(text)
        if not text:
            return "nothing to look for: type it after /"
        place, words = self._hits.step(self._place, step, self._hits_here(text))
        if place is not None:
            self.go_to(place)
        self.refresh()
        self._tell()
        return words

    def search_again(self, step: int) -> str:
        """Go to the next (1) or previous (-1) hit of the last search."""
        return self.search(self._hits.text, step=step)

    def find_line(self, line: str) -> bool:
        """Go to a line; return whether it is among those kept."""
        if self._buffer.only:
            self.show_only("")
        place = self._buffer.last(clean(line).strip())
        if place is not None:
            self.go_to(self._row_of(place))
        return place is not None

    def go_to(self, place: int) -> None:
        """Show the line at ``place`` in the middle, marked."""
        self._place = place
        self._following = False
        top = max(0, place - self.size.height // 2)
        self.scroll_to(y=top, x=0, animate=False, immediate=True, force=True)
        self._following = self.is_vertical_scroll_end
        self.refresh()
        self._tell()

    @property
    def selected(self) -> range:
        """Return the rows from the one where selecting began to the edge that was scrolled to."""
        if self._drag is not None:
            return range(min(self._drag), max(self._drag) + 1)
        if self._anchor is None:
            return range(0)
        anchor, top = self._anchor, self.scroll_offset.y
        bottom = min(self._rows, top + self.scrollable_content_region.height) - 1
        if top < self._anchor_top:
            return range(min(top, anchor), anchor + 1)
        return range(anchor, max(bottom if top > self._anchor_top else anchor, anchor) + 1)

    def select(self) -> bool:
        """Begin to select at the marked row, else the first in sight; or end it. Tell which."""
        begins = self._anchor is None and self._drag is None
        self._drag = None
        self._anchor_top = self.scroll_offset.y
        place = self._anchor_top if self._place is None else self._place
        self._anchor = place if begins else None
        # What arrives at the end is not to be selected by itself.
        self._following = self._following and not begins
        self.refresh()
        self._tell()
        return begins

    def texts(self) -> tuple[list[str], str]:
        """Return the lines to copy, and what they are: selected, marked, or in sight."""
        top = self.scroll_offset.y
        rows, what = range(top, min(self._rows, top + self.size.height)), "in sight"
        if self.selected:
            rows, what = self.selected, "selected"
        elif self._place is not None:
            rows, what = range(self._place, self._place + 1), "marked"
        if len(rows) > MOST_COPIED:
            what += f", the last of {units.count(len(rows))}: a clipboard takes no more"
        return [self._row(row) for row in rows[-MOST_COPIED:]], what

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to select lines with the mouse."""
        self._pressed = self._row_at(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Select the lines that the mouse is dragged over."""
        row = self._row_at(event) if event.button and self._pressed is not None else None
        if row is not None and self._pressed is not None and (self._drag or row != self._pressed):
            self._anchor, self._drag = None, (self._pressed, row)
            self.refresh()
            self._tell()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """End a drag; a click on one line takes the selection away."""
        if self._drag is None or self._row_at(event) == self._pressed:
            self._drag = None
            self.refresh()
            self._tell()
        self._pressed = None

    def _row_at(self, event: events.MouseEvent) -> int | None:
        offset = event.get_content_offset(self)
        row = None if offset is None else self.scroll_offset.y + offset.y
        return row if row is not None and row < self._rows else None

    def on_resize(self) -> None:
        """A smaller view still shows the end, when it did before."""
        self._keep_end()
        self._tell()

    def action_follow(self) -> None:
        """Go to the end and follow it."""
        self._following = True
        self._keep_end()
        self._following = self._anchor is None
        self._tell()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Keep the title true when scrolling away from the end and back."""
        super().watch_scroll_y(old_value, new_value)
        self._following = self.is_vertical_scroll_end and self._anchor is None
        self._tell()

    def render_line(self, y: int) -> Strip:
        """Draw one visible line, its hits marked."""
        width = self.scrollable_content_region.width
        left, top = self.scroll_offset
        place = top + y
        if place >= self._rows:
            return Strip.blank(width, self.rich_style)
        marked = place == self._place or place in self.selected
        style = self.get_component_rich_style("log-view--place") if marked else self.rich_style
        text = self._row(place)
        segments = [Segment(text, style)]
        if self._hits.text:
            hit = style + self.get_component_rich_style("log-view--hit", partial=True)
            segments = [Segment(part, hit if n % 2 else style) for n, part in self._parts(text)]
        strip = Strip(segments)
        if strip.cell_length > left + width > 0:
            # There is more to the right; what is cut is never mistaken for the whole.
            return Strip.join([strip.crop(left, left + width - 1), Strip([Segment("…", style)])])
        return strip.crop(left, left + width).extend_cell_length(width, style)

    def _parts(self, text: str) -> list[tuple[int, str]]:
        wanted = self._hits.text
        seen = text.lower() if wanted.islower() else text
        parts: list[tuple[int, str]] = []
        start = 0
        while (at := seen.find(wanted, start)) >= 0 and len(seen) == len(text):
            end = at + len(wanted)
            parts += [(0, text[start:at]), (1, text[at:end])]
            start = end
        return [*parts, (0, text[start:])]

    @property
    def _rows(self) -> int:
        """Number of rows that can be scrolled to."""
        return len(self._buffer.shown)

    def _row_of(self, place: int) -> int:
        """Return the row of a line that is here, by its place among those."""
        return place

    def _row(self, row: int) -> str:
        """Return the text of a row."""
        return self._buffer.shown[row]

    def _hits_here(self, text: str) -> list[int]:
        """Return the rows with ``text`` that are known here, in order."""
        return self._buffer.hits(text)

    def _new_search(self, text: str) -> Hits:
        return Hits(text)

    def _shift(self, rows: int) -> None:
        """Keep what is in sight where it is after rows came or went above it."""
        if not rows:
            return
        for name in ("_place", "_anchor"):
            place = getattr(self, name)
            if place is not None:
                setattr(self, name, place + rows if place + rows >= 0 else None)
        self._anchor_top += rows
        if self._drag is not None:
            dragged = (self._drag[0] + rows, self._drag[1] + rows)
            self._drag = dragged if min(dragged) >= 0 else None
        if not self._following:
            top = max(0, self.scroll_offset.y + rows)
            self.scroll_to(y=top, animate=False, immediate=True, force=True)

    def _lay_out(self) -> None:
        self.virtual_size = Size(self._buffer.width, self._rows)

    def _keep_end(self) -> None:
        # Without force nothing moves before the scrollbar is there, which the first lines bring.
        if self._following:
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)

    def _count(self) -> str:
        """Say how many lines there are."""
        return units.plural(self._buffer.total, "line")

    def _told(self) -> list[tuple[int, str]]:
        """Return what the title says, in order, each with how soon it goes where room is short."""
        follows = "following" if self._following else "not following (G)"
        told = [(0, "ended" if self._ended else follows), (1, self._count())]
        if self._buffer.only:
            many = units.count(len(self._buffer.shown))
            told.append((4, f"{many} with {self._buffer.only!r}"))
        if self._hits.text:
            told.append((6, f"search: {self._hits.text}"))
        if self._hits.words:
            told.append((3, self._hits.words))
        if self.selected:
            told.append((2, f"{units.plural(len(self.selected), 'line')} selected (y)"))
        return told

    def _tell(self) -> None:
        set_title(self, _fitting(self._told(), self.outer_size.width))


def _fitting(told: list[tuple[int, str]], width: int) -> str:
    """Return a title of the parts that fit into a border, each whole; all without a width."""
    while True:
        title = "Log ─ " + ", ".join(text for _, text in told)
        if width <= 0 or len(told) == 1 or cell_len(title) <= width - _AROUND_TITLE:
            return title
        told = [part for part in told if part != max(told)]
