"""Cells of fixed width, bars, and lines that drop what does not fit rather than clip a figure."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from textual.content import Content

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_CONTROL = dict.fromkeys(
    (*range(32), *range(127, 160), 0x2028, 0x2029), "\N{REPLACEMENT CHARACTER}"
)


def plain(text: str) -> str:
    """Return text from elsewhere as one line without control characters."""
    return text.replace("\t", " ").translate(_CONTROL)


def left(text: str, width: int, style: str = "") -> Content:
    """Return ``text`` left-aligned in ``width`` cells, cut with an ellipsis."""
    return Content.styled(_fit(plain(text), width), style)


def right(text: str, width: int, style: str = "") -> Content:
    """Return a figure right-aligned in ``width`` cells; one that is wider keeps all its digits."""
    return Content.styled(text.rjust(width), style)


def joined(*parts: Content | str) -> Content:
    """Return the parts side by side."""
    return Content.assemble(*parts)


def spread(before: Content, after: Content, width: int) -> Content:
    """Return ``before`` at the left and ``after`` at the right end of ``width`` cells.

    Where both do not fit, ``before`` is cut.
    """
    room = width - after.cell_length
    if before.cell_length >= room:
        before = before.truncate(max(0, room - 1), ellipsis=True)
    return joined(before, " " * max(1, room - before.cell_length), after)


def first_that_fits(width: int, *variants: Content) -> Content:
    """Return the first variant that fits into ``width`` cells, else the last, cut."""
    for variant in variants:
        if variant.cell_length <= width:
            return variant
    return variants[-1].truncate(width, ellipsis=True)


def bar(fraction: float | None, width: int, style: str, *, track: str = "$bar-track") -> Content:
    """Return a horizontal bar in eighths of a cell, on a track; unknown is a dotted track."""
    if width <= 0:
        return Content("")
    if fraction is None:
        return Content.styled("·" * width, "$quiet")
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    if fraction > 0:
        # Something is never drawn as nothing.
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest] if rest else "")
    return joined(
        Content.styled(filled, f"{style} on {track}"),
        Content.styled(" " * (width - cell_len(filled)), f"on {track}"),
    )


def memory_bar(used_bytes: int | None, total_bytes: int | None, width: int) -> Content:
    """Return the bar of a GPU's memory, coloured by how full it is."""
    fraction = used_bytes / total_bytes if used_bytes is not None and total_bytes else None
    return bar(fraction, width, memory_style(used_bytes, total_bytes))


def memory_style(used_bytes: int | None, total_bytes: int | None) -> str:
    """Return the colour of a GPU's memory by how full it is (60 % and 95 %).

    A server that reserves its key-value cache, up to 92 % by default, is no cause for alarm.
    """
    if used_bytes is None or not total_bytes:
        return "$quiet"
    fraction = used_bytes / total_bytes
    level = "low" if fraction < 0.6 else "middle" if fraction < 0.95 else "high"
    return f"$memory-{level}"


def wrapped(text: str, width: int, limit: int = 4) -> list[str]:
    """Return ``text`` in lines of at most ``width`` cells, at most ``limit`` of them."""
    lines: list[str] = []
    line = ""
    for word in plain(text).split():
        candidate = f"{line} {word}" if line else word
        if cell_len(candidate) <= width:
            line = candidate
            continue
        if line:
            lines.append(line)
        line = word
        while cell_len(line) > width:
            head = set_cell_size(line, width).rstrip()
            lines.append(head)
            line = line[len(head) :]
    if line:
        lines.append(line)
    if len(lines) > limit:
        lines = [*lines[: limit - 1], _fit(" ".join(lines[limit - 1 :]), width).rstrip()]
    return lines


def lines(parts: Sequence[Content | str]) -> Content:
    """Return the parts below one another."""
    return Content("\n").join([Content(p) if isinstance(p, str) else p for p in parts])


def _fit(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""
