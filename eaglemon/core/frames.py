"""The agent's frames as bytes: encoding, and an incremental decoder.

docs/agent-protocol.md describes the format; nothing here reads or writes.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from eaglemon.errors import AgentError

MARK = b"\0eaglemon-agent 1\n"
"""What the agent writes first; a login profile may have printed things before it."""
MAX_NOISE_BYTES = 1 << 20
MAX_HEAD_BYTES = 8 << 20
MAX_BLOB_BYTES = 1 << 20
_SIZES = struct.Struct(">II")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message: a JSON object and raw bytes."""

    head: Mapping[str, object]
    blob: bytes = b""
    head_bytes: int = field(default=0, compare=False)
    """Length of the head as it was received."""


def encode_frame(head: Mapping[str, object], blob: bytes = b"") -> bytes:
    """Return the bytes of one frame; raises ``AgentError`` when a part is too large."""
    text = json.dumps(head, separators=(",", ":")).encode()
    _check_sizes(len(text), len(blob))
    return _SIZES.pack(len(text), len(blob)) + text + blob


class FrameDecoder:
    """Turns received bytes, cut anywhere, into frames; skips what comes before the mark.

    After an ``AgentError`` the stream cannot be trusted any more: the link must be closed.
    """

    def __init__(self, *, mark: bytes = MARK) -> None:
        self.noise = b""
        """What came before the mark: says why a login failed when the mark never comes."""
        self._mark = mark
        self._buffer = bytearray()

    @property
    def started(self) -> bool:
        """Whether the mark has been seen."""
        return not self._mark

    def feed(self, data: bytes) -> list[Frame]:
        """Take received bytes and return the frames that are complete now."""
        self._buffer += data
        if self._mark and not self._skip_noise():
            return []
        frames: list[Frame] = []
        start = 0
        while len(self._buffer) - start >= _SIZES.size:
            head_size, blob_size = _SIZES.unpack_from(self._buffer, start)
            _check_sizes(head_size, blob_size)
            head_start = start + _SIZES.size
            blob_start = head_start + head_size
            end = blob_start + blob_size
            if len(self._buffer) < end:
                break
            head = _decode_head(bytes(self._buffer[head_start:blob_start]))
            blob = bytes(self._buffer[blob_start:end])
            frames.append(Frame(head=head, blob=blob, head_bytes=head_size))
            start = end
        # Once per call, not per frame: deleting at the front moves all that follows.
        del self._buffer[:start]
        return frames

    def _skip_noise(self) -> bool:
        at = self._buffer.find(self._mark)
        if at < 0:
            self.noise = bytes(self._buffer)
            if len(self._buffer) > MAX_NOISE_BYTES:
                raise AgentError(
                    "the host printed more than 1 MiB before the agent started",
                    kind="protocol",
                    hint="let its login profile print only to terminals",
                )
            return False
        self.noise = bytes(self._buffer[:at])
        del self._buffer[: at + len(self._mark)]
        self._mark = b""
        return True


def _check_sizes(head_size: int, blob_size: int) -> None:
    if head_size > MAX_HEAD_BYTES or blob_size > MAX_BLOB_BYTES:
        raise AgentError(
            f"a frame of {head_size} + {blob_size} bytes is too large", kind="protocol"
        )


def _decode_head(text: bytes) -> Mapping[str, object]:
    try:
        head = json.loads(text)
    except ValueError as error:
        raise AgentError(f"a frame holds no JSON: {error}", kind="protocol") from error
    if not isinstance(head, dict):
        raise AgentError("a frame holds no JSON object", kind="protocol")
    return head
