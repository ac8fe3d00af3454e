"""The frame codec: pure, whatever the cuts."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.frames import MARK, MAX_BLOB_BYTES, Frame, FrameDecoder, encode_frame
from eaglemon.errors import AgentError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
frames = st.builds(
    lambda head, blob: Frame(head=head, blob=blob),
    st.dictionaries(st.text(max_size=8), values, max_size=4),
    st.binary(max_size=200),
)


@given(st.lists(frames, max_size=6), st.binary(max_size=100), st.data())
def test_any_cut_gives_the_same_frames(
    sent: list[Frame], noise: bytes, data: st.DataObject
) -> None:
    noise = noise.replace(MARK[:1], b"")
    text = noise + MARK + b"".join(encode_frame(frame.head, frame.blob) for frame in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    decoder = FrameDecoder()
    got: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        got += decoder.feed(text[start:end])
    assert got == sent
    assert decoder.started
    assert decoder.noise == noise


def test_byte_by_byte() -> None:
    decoder = FrameDecoder()
    text = b"motd\n" + MARK + encode_frame({"id": 1}, b"blob") + encode_frame({"id": 2})
    got = [frame for byte in text for frame in decoder.feed(bytes([byte]))]
    assert got == [Frame(head={"id": 1}, blob=b"blob"), Frame(head={"id": 2})]


@pytest.mark.parametrize(
    "text",
    [
        struct.pack(">II", 2, MAX_BLOB_BYTES + 1),
        struct.pack(">II", (8 << 20) + 1, 0),
        struct.pack(">II", 2, 0) + b"[]",
        struct.pack(">II", 3, 0) + b"{x}",
        struct.pack(">II", 2, 0) + b"\xff\xfe",
    ],
)
def test_what_is_no_frame_is_refused(text: bytes) -> None:
    decoder = FrameDecoder()
    decoder.feed(MARK)
    with pytest.raises(AgentError) as caught:
        decoder.feed(text)
    assert caught.value.kind == "protocol"


def test_a_blob_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(AgentError):
        encode_frame({}, b"x" * (MAX_BLOB_BYTES + 1))


def test_endless_noise_is_given_up() -> None:
    decoder = FrameDecoder()
    decoder.feed(b"welcome!" * 100_000)
    with pytest.raises(AgentError, match="login profile"):
        decoder.feed(b"welcome!" * 100_000)
    assert not decoder.started
