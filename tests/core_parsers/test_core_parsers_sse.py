"""Server-sent events: the same for every way to cut the bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.sse import SseDecoder, SseEvent

PIECES = st.lists(
    st.sampled_from(
        [
            b"data: x",
            b"data:",
            "data: é🦅".encode(),
            b"event: error",
            b": comment",
            b"id: 4",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"\xef\xbb\xbf",
            b"retry",
        ]
    ),
    max_size=40,
).map(b"".join)


def _all(decoder: SseDecoder, *chunks: bytes) -> list[SseEvent]:
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()


@given(PIECES, st.lists(st.integers(0, 300), max_size=30), st.sampled_from([12, 1 << 20]))
def test_any_split_gives_the_same_events(data: bytes, cuts: list[int], limit: int) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(edges)]
    split, whole = SseDecoder(limit), SseDecoder(limit)
    assert _all(split, *chunks) == _all(whole, data)
    assert split.cut_events == whole.cut_events


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_events(end: bytes) -> None:
    lines = [
        b"\xef\xbb\xbfdata: one",
        b"",
        b": comment",
        b"event: error",
        b"data: two",
        b"data:  three",
        b"id: 7",
        b"",
        b"event: nothing",
        b"",
        b"data",
        b"",
        b"data: [DONE]",
        b"",
    ]
    assert _all(SseDecoder(), end.join([*lines, b""])) == [
        SseEvent(data="one"),
        SseEvent(data="two\n three", event="error"),
        SseEvent(data=""),
        SseEvent(data="[DONE]"),
    ]


def test_event_without_its_end() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b'data: {"error": "died"}') == []
    assert decoder.close() == [SseEvent(data='{"error": "died"}')]


def test_endless_event_is_cut() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(100):
        assert decoder.feed(b"data: " + b"x" * 500) == []
    [event] = decoder.feed(b"\n\n")
    assert len(event.data) <= 100
    assert decoder.cut_events == 1
    assert decoder.feed(b"data: next\n\n") == [SseEvent(data="next")]
