"""What is on the terminal, so that only cells that changed are sent to it. Pure.

Textual sends a whole line of a widget for one digit in it. Over SSH, and all day, that is most of
what a console sends.
"""

import re
from functools import lru_cache

from rich.cells import cell_len

_TOKEN = re.compile(
    r"\x1b\[(?P<row>\d+);(?P<column>\d+)H|\x1b\[(?P<style>[\d;]*)m|(?P<newline>\n)"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
)
_HARMLESS = re.compile(
    r"(?:\x07|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[\?(?!1049)[\d;]*[hl]|\x1b\[[<>=?\d;]*\$?[cnpqu])*"
)
"""Bells, titles, notifications, modes and questions leave the picture as it is."""
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_CLOSE_CELLS = 4
"""Sending so many unchanged cells is shorter than going past them."""
_COLOUR = re.compile(r"(?:^|;)(?P<ground>[34])8;(?:2;\d+;\d+;\d+|5;\d+)")


class TerminalPicture:
    """Turns frames as Textual writes them into what a terminal lacks of them.

    A cell is its text and its style; the second cell of a wide character has the text ``""``.
    """

    def __init__(self) -> None:
        self._cells: dict[int, list[str | None]] = {}
        self._styles: dict[int, list[str]] = {}
        self._cursor: tuple[int, int] | None = None
        """Where the last frame left it; ``None`` is not known."""
        self._begun = False
        """A frame was announced to the terminal, but nothing sent of it so far."""
        self._known_styles: dict[str, str] = {"": ""}

    def forget(self) -> None:
        """Take nothing for known: the terminal was resized, or another program wrote on it."""
        self._cells.clear()
        self._styles.clear()
        self._cursor = None

    def changes(self, data: str) -> str:
        """Return what is to be sent in place of ``data``.

        Whatever is no frame is returned as it is; where it may have changed the picture, nothing
        is known of that from then on.
        """
        if data == _BEGIN:
            self._begun = True
            return ""
        if data == _END and self._begun:
            self._begun = False
            return ""
        out = self._frame(data) if data.startswith("\x1b[") else None
        if out is None:
            if not _HARMLESS.fullmatch(data):
                self.forget()
            out = data
        if out and self._begun:
            self._begun = False
            return _BEGIN + out
        return out

    def _frame(self, data: str) -> str | None:
        """Return the changes of a frame, ``None`` where ``data`` is none."""
        pieces: list[tuple[int, int, str, list[str]]] = []
        y = x = place = 0
        style = ""
        placed = False
        for token in _TOKEN.finditer(data):
            if token.start() != place:
                return None
            place = token.end()
            kind = token.lastgroup
            if kind == "text":
                cells = _cells_of(token["text"])
                if cells is None or not placed:
                    return None
                pieces.append((y, x, style, cells))
                x += len(cells)
            elif kind == "style":
                style = self._style(style, token["style"])
            elif kind == "newline":
                # The next line begins with its place; the cursor is nowhere until then.
                placed = False
            else:
                y, x, placed = int(token["row"]) - 1, int(token["column"]) - 1, True
        if place != len(data) or style:
            return None
        pen = _Pen(self._cursor)
        for piece in pieces:
            self._put(pen, *piece)
        if placed and (pen.out or self._cursor != (y, x)):
            pen.style_to("")
            pen.move_to(y, x)
        self._cursor = pen.at
        return "".join(pen.out)

    def _style(self, before: str, codes: str) -> str:
        if codes in {"", "0"}:
            return ""
        style = f"{before};{codes}" if before else codes
        if len(self._known_styles) > 4096:
            self._known_styles = {"": ""}
        return self._known_styles.setdefault(style, style)

    def _put(self, pen: "_Pen", y: int, x: int, style: str, cells: list[str]) -> None:
        end = x + len(cells)
        known = self._cells.setdefault(y, [])
        styles = self._styles.setdefault(y, [])
        if len(known) < end:
            styles.extend([""] * (end - len(known)))
            known.extend([None] * (end - len(known)))
        drawn = [style] * len(cells)
        if known[x:end] == cells and styles[x:end] == drawn:
            return
        for first, last in _differing(known[x:end], styles[x:end], cells, style):
            pen.move_to(y, x + first)
            pen.style_to(style)
            pen.write(cells[first:last])
        known[x:end] = cells
        styles[x:end] = drawn


class _Pen:
    """Writes what gets a terminal from one state to the next."""

    def __init__(self, at: tuple[int, int] | None) -> None:
        self.at = at
        self.out: list[str] = []
        self._style = ""

    def move_to(self, y: int, x: int) -> None:
        if self.at == (y, x):
            return
        same_row = self.at is not None and self.at[0] == y
        self.out.append(f"\x1b[{x + 1}G" if same_row else f"\x1b[{y + 1};{x + 1}H")
        self.at = (y, x)

    def style_to(self, style: str) -> None:
        if style != self._style:
            self.out.append(_step(self._style, style))
            self._style = style

    def write(self, cells: list[str]) -> None:
        self.out.append("".join(cells))
        if self.at is not None:
            y, x = self.at
            # Terminals disagree on how far some characters take the cursor.
            simple = all(len(cell) == 1 for cell in cells)
            self.at = (y, x + len(cells)) if simple else None


def _differing(
    known: list[str | None], styles: list[str], cells: list[str], style: str
) -> list[tuple[int, int]]:
    """Return the spans of ``cells`` that are not on the terminal in this style."""
    spans: list[tuple[int, int]] = []
    for index, cell in enumerate(cells):
        if known[index] == cell and styles[index] == style:
            continue
        first, last = index, index + 1
        while first and cells[first] == "":
            first -= 1
        while last < len(cells) and cells[last] == "":
            last += 1
        if spans and first - spans[-1][1] <= _CLOSE_CELLS:
            first = spans.pop()[0]
        spans.append((first, last))
    return spans


def _cells_of(text: str) -> list[str] | None:
    """Return the cells of ``text``; ``None`` where it begins with a mark of the cell before."""
    if text.isascii():
        return list(text)
    cells: list[str] = []
    for character in text:
        cell, width = _cell(character)
        if width == 1:
            cells.append(cell)
        elif width == 2:
            cells += (cell, "")
        elif not cells:
            return None
        else:
            index = len(cells) - (2 if cells[-1] == "" else 1)
            cells[index] += cell
    return cells


@lru_cache(maxsize=4096)
def _cell(character: str) -> tuple[str, int]:
    """Return a character, the same object each time, and its width in cells."""
    return character, cell_len(character)


@lru_cache(maxsize=4096)
def _step(before: str, after: str) -> str:
    """Return the shortest sequence that takes the style from one to the other."""
    if not after:
        return "\x1b[m"
    if not before:
        return f"\x1b[{after}m"
    colours, earlier = _colours(after), _colours(before)
    rest, earlier_rest = _COLOUR.sub("", after).strip(";"), _COLOUR.sub("", before).strip(";")
    if rest == earlier_rest and colours.keys() == earlier.keys():
        new = [code for ground, code in colours.items() if earlier[ground] != code]
        return f"\x1b[{';'.join(new)}m"
    return f"\x1b[0;{after}m"


def _colours(style: str) -> dict[str, str]:
    """Return the codes of the foreground (``3``) and of the background (``4``)."""
    return {found["ground"]: found[0].strip(";") for found in _COLOUR.finditer(style)}
