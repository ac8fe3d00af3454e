"""What is sent to the terminal: only what changed, and always enough."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from eaglemon.tui.terminal_picture import TerminalPicture

RED, BLUE = "38;2;200;0;0;48;2;1;2;3", "38;2;0;0;200;48;2;1;2;3"
STYLES = ("", RED, BLUE, f"1;{RED}", "31", "4;38;5;9")


class Screen:
    """A terminal of 40 x 6 cells, as simple as what is written to it."""

    def __init__(self) -> None:
        self.rows = [[(" ", frozenset[str]())] * 40 for _ in range(6)]
        self.style: dict[str, str] = {}
        self.y = self.x = 0

    def write(self, data: str) -> None:
        for token in re.finditer(r"\x1b\[(\??)([\d;]*)([A-Za-z])|(\n)|([^\x1b\n])", data):
            private, numbers, final, newline, character = token.groups()
            if character is not None:
                self._put(character)
            elif newline is not None:
                self.y += 1
            elif final == "H":
                self.y, self.x = (int(number) - 1 for number in numbers.split(";"))
            elif final == "G":
                self.x = int(numbers) - 1
            elif final == "m":
                self._style(numbers)
            else:
                assert private, f"not understood: {token[0]!r}"

    def _put(self, character: str) -> None:
        style = frozenset(self.style.values())
        if cell_len(character) == 0:
            before = self.x - 1 if self.rows[self.y][self.x - 1][0] else self.x - 2
            self.rows[self.y][before] = (self.rows[self.y][before][0] + character, style)
            return
        self.rows[self.y][self.x] = (character, style)
        self.x += 1
        if cell_len(character) == 2:
            self.rows[self.y][self.x] = ("", style)
            self.x += 1

    def _style(self, numbers: str) -> None:
        for code in re.findall(r"[34]8;2;\d+;\d+;\d+|[34]8;5;\d+|\d+", numbers) or ["0"]:
            if code == "0":
                self.style.clear()
            else:
                self.style["fg" if code.startswith("3") else code[:2]] = code


def frame(*pieces: tuple[int, int, str, str], cursor: tuple[int, int] = (0, 0)) -> str:
    """Return pieces of (row, column, style, text) as Textual writes them."""
    text = "\n".join(
        f"\x1b[{y + 1};{x + 1}H" + (f"\x1b[{style}m{words}\x1b[0m" if style else words)
        for y, x, style, words in pieces
    )
    return f"{text}\x1b[{cursor[0] + 1};{cursor[1] + 1}H"


PIECE = st.tuples(
    st.integers(0, 5),
    st.integers(0, 15),
    st.sampled_from(STYLES),
    st.text("ab 0█─…日e", min_size=1, max_size=12),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(PIECE, min_size=1, max_size=5), min_size=1, max_size=6))
def test_the_terminal_shows_what_it_would_show_of_all(
    frames: list[list[tuple[int, int, str, str]]],
) -> None:
    whole, sparing = Screen(), Screen()
    picture = TerminalPicture()
    for pieces in frames:
        data = frame(*pieces)
        whole.write(data)
        sparing.write(picture.changes(data))
        assert sparing.rows == whole.rows
        assert (sparing.y, sparing.x) == (whole.y, whole.x)


def test_a_digit_costs_a_few_bytes() -> None:
    picture = TerminalPicture()
    line = "GPU 0 " + "█" * 60 + " 17 %"
    picture.changes(frame((3, 0, RED, line)))
    sent = picture.changes(frame((3, 0, RED, line.replace("17", "18"))))
    assert len(sent) < 60
    assert sent.count("8") < sent.count("█") + 10
    assert picture.changes(frame((3, 0, RED, line.replace("17", "18")))) == ""


def test_frames_without_news_are_not_announced_either() -> None:
    picture = TerminalPicture()
    begin, end = "\x1b[?2026h", "\x1b[?2026l"
    shown = frame((0, 0, "", "hello"))
    assert picture.changes(begin) + picture.changes(shown) == f"{begin}\x1b[1;1Hhello\x1b[1G"
    assert picture.changes(end) == end
    assert [picture.changes(data) for data in (begin, shown, end)] == ["", "", ""]


@pytest.mark.parametrize(
    ("data", "forgotten"),
    [
        ("\x07", False),
        ("\x1b]9;done\x07", False),
        ("\x1b[?1004h", False),
        ("\x1b[?1049h", True),
        ("\x1b[2J", True),
        ("plain text", True),
        ("\x1b[1;1H\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", True),
    ],
)
def test_what_is_no_frame_goes_as_it_is(data: str, forgotten: bool) -> None:
    picture = TerminalPicture()
    shown = frame((0, 0, RED, "hello"))
    picture.changes(shown)
    assert picture.changes(data) == data
    assert (picture.changes(shown) != "") is forgotten


def test_after_a_resize_all_is_sent_again() -> None:
    picture = TerminalPicture()
    shown = frame((0, 0, RED, "hello"))
    picture.changes(shown)
    picture.forget()
    assert "hello" in picture.changes(shown)
