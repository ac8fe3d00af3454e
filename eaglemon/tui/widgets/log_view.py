"""A server's log: bounded, fed in batches, following its end until scrolled away."""

import re
from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import Log

from eaglemon.core import units
from eaglemon.tui.columns import plain
from eaglemon.tui.widgets.text_panel import set_title

MAX_LINES = 20_000
_LONGEST_LINE = 2_000
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def clean(line: str) -> str:
    """Return a log line without terminal sequences and control characters, cut when endless."""
    text = plain(_ANSI.sub("", line.rstrip("\r\n")))
    if len(text) > _LONGEST_LINE:
        return f"{text[:_LONGEST_LINE]}… ({units.count(len(text))} characters)"
    # The base widget drops empty lines, but a log is read by its paragraphs.
    return text or " "


class LogView(Log):
    """Lines are collected and written a few times a second, however fast they come."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", show=False),
        Binding("down,j", "scroll_down", show=False),
        Binding("g,home", "scroll_home", show=False),
        Binding("G,end", "follow", show=False),
    ]

    def __init__(self, *, flush_s: float = 0.1, id: str | None = None) -> None:  # noqa: A002
        super().__init__(max_lines=MAX_LINES, auto_scroll=True, id=id)
        self._flush_s = flush_s
        self._waiting: deque[str] = deque(maxlen=MAX_LINES)
        self._timer: Timer | None = None
        self._total = 0
        self._dropped = 0
        self._ended = False
        self._following = True

    def on_mount(self) -> None:
        """Say that nothing has come yet."""
        self._tell()

    def add(self, lines: Iterable[str], *, dropped: int = 0) -> None:
        """Take lines; ``dropped`` were left out before them."""
        for line in lines:
            self._waiting.append(clean(line))
            self._total += 1
        self._dropped += dropped
        if self._flush_s <= 0:
            self.flush()
        elif self._timer is None:
            self._timer = self.set_timer(self._flush_s, self.flush)

    def end(self, reason: str = "") -> None:
        """Say that no more lines will come, and why where that is an error."""
        self.flush()
        self._ended = True
        if reason:
            self.write_line(plain(reason))
        self._tell()

    def restart(self) -> None:
        """Forget everything, before another log is shown."""
        self._waiting.clear()
        self._total = self._dropped = 0
        self._ended = False
        self.clear()
        self._tell()

    def flush(self) -> None:
        """Write what has been collected."""
        self._timer = None
        if self._waiting:
            batch = list(self._waiting)
            self._waiting.clear()
            self.write_lines(batch)
            self._keep_end()
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

    def _keep_end(self) -> None:
        if self._following:
            self.scroll_end(animate=False, immediate=True, x_axis=False)

    def _tell(self) -> None:
        follows = "following" if self._following else "not following (G)"
        how = "ended" if self._ended else follows
        text = f"Log ─ {how}, {units.plural(self._total, 'line')}"
        if self._dropped:
            text += f", {units.count(self._dropped)} left out"
        set_title(self, text)
