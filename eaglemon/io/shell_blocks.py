"""Cuts what sh scripts write into blocks: each ends with a mark."""

from eaglemon.errors import AgentError, LinkLostError
from eaglemon.io.transport import ByteProcess

GS = b"\x1d"
_READ_BYTES = 1 << 16
_BLOCK_MOST_BYTES = 16 << 20


class Blocks:
    """Cuts a process's output at its marks."""

    def __init__(self, process: ByteProcess) -> None:
        self._process = process
        self._held = b""

    async def until_mark(self) -> str | None:
        """Return the text before the next mark; ``None`` at the end."""
        while (place := self._held.find(GS)) < 0:
            if len(self._held) > _BLOCK_MOST_BYTES:
                raise AgentError("the host's sh sent an endless block", kind="protocol")
            data = await self._process.read(_READ_BYTES)
            if not data:
                return None
            # Line feeds alone say that the link lives; they must not pile up.
            self._held = (
                (self._held + data).lstrip(b"\n")
                if self._held.strip(b"\n") == b""
                else (self._held + data)
            )
        block, self._held = self._held[:place], self._held[place + 1 :]
        return block.decode("utf-8", "replace")

    async def exactly(self, length: int) -> bytes:
        """Return that many raw bytes."""
        while len(self._held) < length:
            data = await self._process.read(_READ_BYTES)
            if not data:
                raise LinkLostError("the connection ended in the middle of a log")
            self._held += data
        data, self._held = self._held[:length], self._held[length:]
        return data
