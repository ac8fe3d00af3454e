"""Lines shown again and again: what is written of them."""

from eaglemon.cli.line_picture import LinePicture


def test_only_lines_that_changed_are_written() -> None:
    picture = LinePicture()
    first = picture.changes(["one", "two", "three"], columns=20, rows=10)
    assert first.startswith("\x1b[H\x1b[J")
    assert "two" in first
    again = picture.changes(["one", "TWO", "three"], columns=20, rows=10)
    assert again == "\x1b[2;1HTWO\x1b[K\x1b[4;1H\x1b[J"
    assert picture.changes(["one", "TWO", "three"], columns=20, rows=10) == ""


def test_lines_that_are_gone_are_cleared() -> None:
    picture = LinePicture()
    picture.changes(["one", "two"], columns=20, rows=10)
    assert picture.changes(["one"], columns=20, rows=10) == "\x1b[2;1H\x1b[J"


def test_what_has_no_room_is_left_out_and_said() -> None:
    picture = LinePicture()
    lines = [f"line {number} of many" for number in range(12)]
    shown = picture.changes(lines, columns=34, rows=6)
    assert "line 3" in shown
    assert "line 4" not in shown
    assert "... 8 lines more" in shown
    wide = picture.changes(["日本語 GPU", "a\tb\nc"], columns=5, rows=6)
    assert "日本\x1b[K" in wide
    assert "a   b\x1b[K" in wide


def test_red_lines_and_a_terminal_of_another_size() -> None:
    picture = LinePicture()
    first = picture.changes(["fine", "\x1b[31mlost again\x1b[0m"], columns=4, rows=10)
    assert "\x1b[31mlost\x1b[0m" in first
    resized = picture.changes(["fine", "\x1b[31mlost again\x1b[0m"], columns=30, rows=10)
    assert resized.startswith("\x1b[H\x1b[J")
    assert "fine" in resized
