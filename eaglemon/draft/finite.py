"""Whether a draft's weights are finite, looked at without torch and within a bound.

What is not finite has all bits of its exponent set, which the bytes tell: BF16 and F32 as
``0x7F80`` in the upper half, F16 as ``0x7C00`` (IEEE 754; little endian on disk).
"""

from dataclasses import dataclass

from eaglemon.core.problems import Problem
from eaglemon.core.units import memory
from eaglemon.draft.checkpoint import Checkpoint, TensorInfo

MOST_BYTES = 512 << 20
"""Read of one draft; small tensors come first."""
_PIECE_BYTES = 4 << 20
_TOP_BYTES = (0x7F, 0xFF)
_HALF_TOP_BYTES = (*range(0x7C, 0x80), *range(0xFC, 0x100))


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteScan:
    """What was found."""

    problems: tuple[Problem, ...]
    read_bytes: int
    of_bytes: int
    """Of all floating-point weights."""

    @property
    def told(self) -> str:
        """How much was looked at, in words."""
        if self.read_bytes >= self.of_bytes:
            return "all values looked at"
        return f"{memory(self.read_bytes)} of {memory(self.of_bytes)} looked at for NaN"


def scan(draft: Checkpoint, most_bytes: int = MOST_BYTES) -> FiniteScan:
    """Look for values that are not finite; raises ``ConfigError`` where the file cannot be read."""
    weights = sorted(
        (info for info in draft.tensors.values() if info.dtype in {"BF16", "F16", "F32"}),
        key=lambda info: info.size_bytes,
    )
    problems = []
    left = most_bytes
    for info in weights:
        size = min(info.size_bytes, left)
        left -= size
        at = next(
            (
                start
                for start in range(0, size, _PIECE_BYTES)
                if _odd(info, draft.reader(info, start, min(_PIECE_BYTES, size - start)))
            ),
            None,
        )
        if at is not None:
            problems.append(
                Problem(
                    where=info.name,
                    message="has values that are not finite (NaN or infinite): whatever they "
                    "touch is never accepted",
                    hint="save the draft again from a sound checkpoint",
                    slug="not-finite",
                )
            )
    total = sum(info.size_bytes for info in weights)
    return FiniteScan(problems=tuple(problems), read_bytes=most_bytes - left, of_bytes=total)


def _odd(info: TensorInfo, data: bytearray) -> bool:
    """Tell whether any value is not finite."""
    width = 4 if info.dtype == "F32" else 2
    top = data[width - 1 :: width]
    if info.dtype == "F16":
        return any(value in top for value in _HALF_TOP_BYTES)
    if not any(value in top for value in _TOP_BYTES):
        return False
    # Rare: such values are infinite, NaN or above 1e38.
    below = data[width - 2 :: width]
    return any(high in _TOP_BYTES and low >= 0x80 for high, low in zip(top, below, strict=False))
