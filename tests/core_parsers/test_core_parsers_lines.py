"""Lines from bytes: the same for every way to cut the bytes, in bounded memory."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.lines import Line, LineAssembler

PIECES = st.lists(
    st.sampled_from(
        [
            b"\n",
            b"\r",
            b"\r\n",
            b"x",
            b"some words",
            "é█🦅".encode(),
            b"\x1b[1;33mwarn\x1b[0m",
            b"\x00\x07",
            b"\xff\xfe",
            b"y" * 40,
        ]
    ),
    max_size=40,
).map(b"".join)


def _all(assembler: LineAssembler, *chunks: bytes) -> list[Line]:
    return [line for chunk in chunks for line in assembler.feed(chunk)] + assembler.close()


@given(PIECES, st.lists(st.integers(0, 400), max_size=30))
def test_any_split_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    whole, split = LineAssembler(max_line_bytes=32), LineAssembler(max_line_bytes=32)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(edges)]
    assert _all(split, *chunks) == _all(whole, data)
    assert (split.cut_lines, split.cut_bytes) == (whole.cut_lines, whole.cut_bytes)


@given(PIECES)
def test_lines_are_those_of_the_bytes(data: bytes) -> None:
    lines = _all(LineAssembler(), *[bytes([byte]) for byte in data])
    assert sum(not line.transient for line in lines) == len(data.splitlines()) - _updates(data)
    assert all(data[line.end_offset - 1 : line.end_offset] for line in lines)
    assert [line.number for line in lines] == sorted(line.number for line in lines)


def _updates(data: bytes) -> int:
    """Count what splitlines() counts and we do not: text that a carriage return rewrote."""
    lines = data.splitlines(keepends=True)
    return sum(
        line.endswith(b"\r") or any(byte in line for byte in (b"\x0b", b"\x0c")) for line in lines
    )


def test_progress_bar_is_one_line() -> None:
    lines = _all(LineAssembler(), b"a\n\rbar 1/2\rbar 2/2\nb\r\nc")
    assert [(line.text, line.number, line.transient) for line in lines] == [
        ("a", 1, False),
        ("bar 1/2", 2, True),
        ("bar 2/2", 2, False),
        ("b", 3, False),
        ("c", 4, False),
    ]
    assert [line.end_offset for line in lines] == [2, 11, 19, 22, 23]


def test_text_is_clean() -> None:
    raw = b"\x1b[1;36m(Worker pid=1)\x1b[0;0m o\xc3\xa9\xff\x00k\x1b]0;title\x07\n"
    [line] = _all(LineAssembler(), raw[:25], raw[25:])
    assert line.text == "(Worker pid=1) oé\ufffdk"


def test_endless_line_is_cut() -> None:
    assembler = LineAssembler(max_line_bytes=100)
    lines: list[Line] = []
    for _ in range(50):
        lines += assembler.feed(b"z" * 1000)
    assert lines == []
    lines = assembler.feed(b"end\nnext\n")
    assert [(line.text, line.number) for line in lines] == [("z" * 100, 1), ("next", 2)]
    assert lines[0].end_offset == 50_004
    assert (assembler.cut_lines, assembler.cut_bytes) == (1, 50_003 - 100)


def test_return_at_the_end_of_a_chunk_waits() -> None:
    assembler = LineAssembler()
    assert assembler.feed(b"one\r") == []
    [line] = assembler.feed(b"\n")
    assert (line.text, line.transient) == ("one", False)
    assembler.feed(b"two\r")
    [update] = assembler.close()
    assert (update.text, update.transient) == ("two", True)


@given(PIECES, st.lists(st.integers(0, 400), max_size=30))
def test_texts_are_those_of_the_lines_and_end_where_they_end(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assembler = LineAssembler(max_line_bytes=32)
    pieces = [
        piece for begin, end in pairwise(edges) for piece in assembler.texts(data[begin:end])
    ] + assembler.close_texts()
    lines = [line for line in _all(LineAssembler(max_line_bytes=32), data) if not line.transient]
    assert [text for texts, _ in pieces for text in texts] == [line.text for line in lines]
    count = 0
    for texts, end in pieces:
        count += len(texts)
        assert lines[count - 1].end_offset == end
    cut = [n for n, line in enumerate(lines) if line.end_offset - _begin(lines, n) > 32]
    ends = {lines[n].end_offset for n in cut}
    assert ends <= {end for _, end in pieces}


def _begin(lines: list[Line], number: int) -> int:
    return lines[number - 1].end_offset if number else 0
