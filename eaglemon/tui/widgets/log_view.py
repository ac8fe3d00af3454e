"""A server's log: bounded, fed in batches, following its end until scrolled away; with search."""

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer

from eaglemon.core import units
from eaglemon.tui.columns import plain
from eaglemon.tui.log_buffer import LogBuffer, clean
from eaglemon.tui.widgets.text_panel import set_title

__all__ = ["MAX_LINES", "LogView", "clean"]

MAX_LINES = 20_000


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
        self._dropped = 0
        self._ended = False
        self._following = True
        self._wanted = ""
        self._place: int | None = None

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

    def add(self, lines: Iterable[str], *, dropped: int = 0) -> None:
        """Take lines; ``dropped`` were left out before them."""
        for line in lines:
            self._waiting.append(line)
            self._unseen += 1
        self._dropped += dropped
        if self._flush_s <= 0:
            self.flush()
        elif self._timer is None:
            self._timer = self.set_timer(self._flush_s, self.flush)

    def end(self, reason: str = "") -> None:
        """Say that no more lines will come, and why where that is an error."""
        if reason:
            self._waiting.append(plain(reason))
        self._ended = True
        self.flush()

    def flush(self) -> None:
        """Draw what has been collected."""
        self._timer = None
        if self._waiting:
            # Cleaned here, so that lines which nobody will see cost nothing.
            batch = [clean(line) for line in self._waiting]
            self._waiting.clear()
            gone = self._buffer.add(batch)
            self._buffer.total += max(0, self._unseen - len(batch))
            self._unseen = 0
            self._lay_out()
            if self._place is not None:
                self._place = self._place - gone if self._place >= gone else None
            if not self._following and gone:
                self.scroll_to(y=max(0, self.scroll_offset.y - gone), animate=False, immediate=True)
            self._keep_end()
            self.refresh()
        self._tell()

    def show_only(self, text: str) -> None:
        """Show only lines that contain ``text``; empty shows all again."""
        self._buffer.filter(text)
        self._place = None
        self._lay_out()
        self.action_follow()
        self.refresh()

    def search(self, text: str, *, step: int = -1) -> str:
        """Go to the next (1) or previous (-1) line with ``text``; return how that went."""
        if text != self._wanted:
            self._wanted, self._place = text, None
        hits = self._buffer.hits(text)
        if not hits:
            self.refresh()
            self._tell()
            return f"no line contains {text!r}" if text else "nothing to look for: type it after /"
        if self._place is None:
            place = hits[-1] if step < 0 else hits[0]
        else:
            after = [n for n in hits if (n > self._place if step > 0 else n < self._place)]
            around = hits[0] if step > 0 else hits[-1]
            place = (after[0] if step > 0 else after[-1]) if after else around
        self.go_to(place)
        return f"hit {hits.index(place) + 1} of {len(hits)}"

    def search_again(self, step: int) -> str:
        """Go to the next (1) or previous (-1) hit of the last search."""
        return self.search(self._wanted, step=step)

    def find_line(self, line: str) -> bool:
        """Go to a line; return whether it is among those kept."""
        if self._buffer.only:
            self.show_only("")
        place = self._buffer.last(clean(line).strip())
        if place is not None:
            self.go_to(place)
        return place is not None

    def go_to(self, place: int) -> None:
        """Show the line at ``place`` in the middle, marked."""
        self._place = place
        self._following = False
        top = max(0, place - self.size.height // 2)
        self.scroll_to(y=top, x=0, animate=False, immediate=True)
        self._following = self.is_vertical_scroll_end
        self.refresh()
        self._tell()

    def on_resize(self) -> None:
        """A smaller view still shows the end, when it did before."""
        self._keep_end()

    def action_follow(self) -> None:
        """Go to the end and follow it."""
        self._following = True
        self._keep_end()
        self._tell()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Keep the title true when scrolling away from the end and back."""
        super().watch_scroll_y(old_value, new_value)
        self._following = self.is_vertical_scroll_end
        self._tell()

    def render_line(self, y: int) -> Strip:
        """Draw one visible line, its hits marked."""
        width = self.scrollable_content_region.width
        left, top = self.scroll_offset
        place = top + y
        if place >= len(self._buffer.shown):
            return Strip.blank(width, self.rich_style)
        marked = place == self._place
        style = self.get_component_rich_style("log-view--place") if marked else self.rich_style
        text = self._buffer.shown[place]
        segments = [Segment(text, style)]
        if self._wanted:
            hit = style + self.get_component_rich_style("log-view--hit", partial=True)
            segments = [Segment(part, hit if n % 2 else style) for n, part in self._parts(text)]
        return Strip(segments).crop(left, left + width).extend_cell_length(width, style)

    def _parts(self, text: str) -> list[tuple[int, str]]:
        seen = text.lower() if self._wanted.islower() else text
        parts: list[tuple[int, str]] = []
        start = 0
        while (at := seen.find(self._wanted, start)) >= 0 and len(seen) == len(text):
            end = at + len(self._wanted)
            parts += [(0, text[start:at]), (1, text[at:end])]
            start = end
        return [*parts, (0, text[start:])]

    def _lay_out(self) -> None:
        self.virtual_size = Size(self._buffer.width, len(self._buffer.shown))

    def _keep_end(self) -> None:
        if self._following:
            self.scroll_end(animate=False, immediate=True, x_axis=False)

    def _tell(self) -> None:
        follows = "following" if self._following else "not following (G)"
        how = "ended" if self._ended else follows
        text = f"Log ─ {how}, {units.plural(self._buffer.total, 'line')}"
        if self._dropped:
            text += f", {units.count(self._dropped)} left out"
        if self._buffer.only:
            text += f", {units.count(len(self._buffer.shown))} with {self._buffer.only!r}"
        if self._wanted:
            text += f", search: {self._wanted}"
        set_title(self, text)
