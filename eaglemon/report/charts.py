"""Charts as SVG text, drawn by pure functions: no library, no script, readable offline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from eaglemon.core.experiment_records import Startup
from eaglemon.core.stats import Interval
from eaglemon.core.units import duration

COLOURS = (
    "#1f77b4",
    "#d95f02",
    "#1b9e77",
    "#7570b3",
    "#e7298a",
    "#66a61e",
    "#a6761d",
    "#666666",
    "#17becf",
    "#8c2d04",
)
_FONT = 'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'
_ROW = 26
_LEFT = 170


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line of a chart: (x, y) points by x."""

    name: str
    points: tuple[tuple[float, float], ...]


def forest(rows: Sequence[tuple[str, Interval | None]], *, width: int = 720) -> str:
    """Return ratios with their intervals around the line of no difference."""
    known = [interval for _, interval in rows if interval is not None]
    low = min([1.0, *(one.low for one in known)])
    high = max([1.0, *(one.high for one in known)])
    pad = (high - low) * 0.08 or 0.1
    low, high = low - pad, high + pad
    height = _ROW * len(rows) + 44

    def x(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (width - _LEFT - 20)

    parts = [_line(x(1.0), 8, x(1.0), height - 32, dash=True)]
    for place, (name, interval) in enumerate(rows):
        y = 22 + _ROW * place
        parts.append(_text(_LEFT - 10, y + 4, _short(name), anchor="end"))
        if interval is None:
            parts.append(_text(x(1.0) + 8, y + 4, "not measured"))
            continue
        colour = COLOURS[place % len(COLOURS)]
        parts.append(_line(x(interval.low), y, x(interval.high), y, colour=colour, stroke=2))
        parts.append(f'<circle cx="{x(interval.value):.1f}" cy="{y}" r="5" fill="{colour}"/>')
    for mark in _ticks(low, high):
        parts.append(_text(x(mark), height - 8, f"{mark:g} x", anchor="middle"))
        parts.append(_line(x(mark), height - 30, x(mark), height - 26))
    return _svg(width, height, parts, "ratios with intervals")


def lines(series: Sequence[Series], *, x_name: str, y_name: str, width: int = 720) -> str:
    """Return lines with their points, such as tok/s over steps per concurrency."""
    height, left, bottom = 320, 60, 50
    xs = sorted({x for one in series for x, _ in one.points})
    top = max((y for one in series for _, y in one.points), default=1.0) * 1.08 or 1.0
    span = (xs[-1] - xs[0]) if len(xs) > 1 else 1.0
    first = xs[0] if xs else 0.0

    def px(value: float) -> float:
        return left + 20 + (value - first) / span * (width - left - 180)

    def py(value: float) -> float:
        return height - bottom - value / top * (height - bottom - 20)

    parts = [_line(left, height - bottom, width - 140, height - bottom)]
    parts += [_text(px(x), height - bottom + 18, f"{x:g}", anchor="middle") for x in xs]
    for mark in _ticks(0.0, top):
        parts.append(_text(left - 6, py(mark) + 4, f"{mark:g}", anchor="end"))
        parts.append(_line(left, py(mark), width - 140, py(mark), dash=True))
    for place, one in enumerate(series):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in one.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in one.points:
            parts.append(f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="4" fill="{colour}"/>')
        parts.append(_text(width - 130, 24 + 18 * place, _short(one.name, 18), colour=colour))
    parts.append(_text((left + width - 140) / 2, height - 12, x_name, anchor="middle"))
    parts.append(_text(8, 14, y_name))
    return _svg(width, height, parts, f"{y_name} over {x_name}")


def timelines(startups: Sequence[Startup], *, width: int = 720) -> str:
    """Return starts as bars of their phases, a line each."""
    longest = max(
        (
            (phase.started_s or 0.0) + (phase.elapsed_s or 0.0)
            for start in startups
            for phase in start.phases
        ),
        default=0.0,
    )
    longest = longest or 1.0
    names = list(dict.fromkeys(phase.phase for start in startups for phase in start.phases))
    height = _ROW * (len(startups) + 1) + 30
    scale = (width - _LEFT - 80) / longest
    parts = []
    for place, start in enumerate(startups):
        y = 10 + _ROW * place
        parts.append(_text(_LEFT - 10, y + 13, _short(start.profile), anchor="end"))
        for phase in start.phases:
            if phase.started_s is None or phase.elapsed_s is None:
                continue
            colour = COLOURS[names.index(phase.phase) % len(COLOURS)]
            title = escape(f"{phase.phase}: {duration(phase.elapsed_s)}")
            parts.append(
                f'<rect x="{_LEFT + phase.started_s * scale:.1f}" y="{y}" height="18" '
                f'width="{max(1.0, phase.elapsed_s * scale):.1f}" fill="{colour}">'
                f"<title>{title}</title></rect>"
            )
        end = "failed" if start.ready_s is None else duration(start.ready_s)
        parts.append(_text(width - 70, y + 13, end))
    x = 10.0
    for place, name in enumerate(names):
        parts.append(_text(x, height - 12, name, colour=COLOURS[place % len(COLOURS)]))
        x += 8.0 * len(name) + 14
    return _svg(width, height, parts, "start-up timelines")


def positions(rows: Sequence[tuple[str, Sequence[float]]], *, width: int = 720) -> str:
    """Return acceptance by draft position, a line for each arm."""
    series = tuple(
        Series(
            name=name,
            points=tuple((place + 1.0, share * 100) for place, share in enumerate(shares)),
        )
        for name, shares in rows
        if shares
    )
    return lines(series, x_name="draft position", y_name="accepted, %", width=width)


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 5 or 1.0
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * 0.999)
    first = math.ceil(low / step) * step
    marks = [round(first + step * place, 6) for place in range(12)]
    return [mark for mark in marks if low <= mark <= high]


def _short(name: str, most: int = 24) -> str:
    return name if len(name) <= most else f"{name[: most - 3]}..."


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "") -> str:
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}>{escape(text)}</text>'


def _line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    *,
    colour: str = "#999",
    stroke: int = 1,
    dash: bool = False,
) -> str:
    dashes = ' stroke-dasharray="4 4"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{stroke}"{dashes}/>'
    )


def _svg(width: int, height: int, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" {_FONT}>'
        + "".join(parts)
        + "</svg>"
    )
