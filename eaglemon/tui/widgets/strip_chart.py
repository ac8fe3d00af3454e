"""A line of measurements over time in braille dots, on a scale that does not follow the noise."""

import math
from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from eaglemon.core import units
from eaglemon.tui.columns import joined, lines

Series = Sequence[tuple[float, float]]
"""(unix seconds, value), oldest first."""

_LABEL_WIDTH = 6
# Bits of the eight dots of a braille cell, by column and by row from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_STEPS = (1.0, 2.0, 5.0, 10.0)


def nice_ceiling(value: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, 50, ... that is not below ``value``."""
    if value <= 1.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _STEPS if step * power >= value * (1 - 1e-9))


class StripChart(Widget):
    """One series over the last ``window_s`` seconds.

    The scale starts at ``low``. Its upper end is ``high`` where given; otherwise it is the next
    round number above the largest value so far, ``least_high`` at least, and never shrinks while
    the chart lives.
    """

    DEFAULT_CSS = """
    StripChart { height: 1fr; min-height: 3; }
    """

    def __init__(
        self,
        style: str,
        *,
        low: float = 0.0,
        high: float | None = None,
        least_high: float = 1.0,
        window_s: float = 300.0,
        gap_s: float = 30.0,
        id: str | None = None,  # noqa: A002 (Textual's own name)
    ) -> None:
        super().__init__(id=id)
        self._style = style
        self._low = low
        self._fixed_high = high
        self._high = least_high if high is None else high
        self._window_s = window_s
        self._gap_s = gap_s
        self._series: Series = ()
        self._now = 0.0
        self._picture: tuple[float, float, tuple[float, float] | None] | None = None

    def show(self, series: Series, now: float, *, high: float | None = None) -> None:
        """Show ``series`` up to ``now``; ``high`` fixes the upper end of the scale."""
        if high is not None:
            self._fixed_high = self._high = high
        elif self._fixed_high is None:
            largest = max((value for _, value in series), default=0.0)
            self._high = max(self._high, nice_ceiling(largest))
        # The picture moves by whole dots: drawing it in between would send the same again.
        dots = (self.size.width - _LABEL_WIDTH - 1) * 2
        # Without a size there are no dots yet, and what is shown later must not lie in the future.
        dot_s = self._window_s / dots if dots > 0 else 1.0
        now = math.ceil(now / dot_s) * dot_s
        picture = (now, self._high, series[-1] if series else None)
        if picture == self._picture:
            return
        self._picture = picture
        self._series, self._now = series, now
        self.refresh()

    def render(self) -> Content:
        """Draw labels, dots and the time axis."""
        width = self.size.width - _LABEL_WIDTH - 1
        height = self.size.height - 1
        if width < 4 or height < 2:
            return Content("")
        cells = braille(
            self._series,
            width=width,
            height=height,
            span=(self._now - self._window_s, self._now),
            scale=(self._low, self._high),
            gap_s=self._gap_s,
        )
        rows: list[Content | str] = []
        for index, text in enumerate(cells):
            label = self._label(index, height)
            edge = "┤" if label.strip() else "│"
            rows.append(
                joined(
                    Content.styled(f"{label}{edge}", "$quiet"), Content.styled(text, self._style)
                )
            )
        before = f"-{units.span(self._window_s)}"
        axis = " " * _LABEL_WIDTH + "└" + before + "now".rjust(width - len(before))
        rows.append(Content.styled(axis, "$quiet"))
        return lines(rows)

    def _label(self, index: int, height: int) -> str:
        if index == 0:
            value = self._high
        elif index == height - 1:
            value = self._low
        elif height >= 5 and index == (height - 1) // 2 and height % 2 == 1:
            value = (self._high + self._low) / 2
        else:
            return " " * _LABEL_WIDTH
        text = f"{value:.0f}" if value == round(value) else f"{value:.1f}"
        return f"{text} ".rjust(_LABEL_WIDTH)


def braille(
    series: Series,
    *,
    width: int,
    height: int,
    span: tuple[float, float],
    scale: tuple[float, float],
    gap_s: float,
) -> list[str]:
    """Return ``height`` rows of ``width`` braille cells with the line of ``series``.

    ``span`` and ``scale`` are the first and last second and value of the picture. Points of one
    dot column are averaged; neighbours up to ``gap_s`` apart are joined, longer gaps stay empty.
    """
    columns, levels = width * 2, height * 4
    start, end = span
    low, high = scale
    grid = [[0] * width for _ in range(height)]
    before: tuple[int, int, float] | None = None
    for column, at, value in _averaged(series, columns, start, end):
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        level = round(share * (levels - 1))
        if before is not None and at - before[2] <= gap_s:
            _draw_line(grid, before[:2], (column, level), levels)
        else:
            _draw_dot(grid, column, level, levels)
        before = (column, level, at)
    return ["".join(chr(0x2800 + bits) if bits else " " for bits in row) for row in grid]


def _averaged(
    series: Series, columns: int, start: float, end: float
) -> list[tuple[int, float, float]]:
    points: list[tuple[int, float, float]] = []
    count = 0
    for at, value in series:
        if not start <= at <= end:
            continue
        column = min(columns - 1, int((at - start) / (end - start) * columns))
        if points and points[-1][0] == column:
            count += 1
            mean = points[-1][2] + (value - points[-1][2]) / count
            points[-1] = (column, at, mean)
        else:
            count = 1
            points.append((column, at, value))
    return points


def _draw_line(
    grid: list[list[int]], start: tuple[int, int], end: tuple[int, int], levels: int
) -> None:
    (column, level), (last_column, last_level) = start, end
    steps = max(last_column - column, abs(last_level - level), 1)
    for step in range(steps + 1):
        share = step / steps
        _draw_dot(
            grid,
            round(column + (last_column - column) * share),
            round(level + (last_level - level) * share),
            levels,
        )


def _draw_dot(grid: list[list[int]], column: int, level: int, levels: int) -> None:
    row = levels - 1 - level
    grid[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
