"""Tells readers that something changed; a slow reader misses steps, never the latest state."""

import asyncio
from collections.abc import Callable

TICK_S = 1.0
"""Ages on screen move at least this often."""
COALESCE_S = 0.1
"""Changes within this time make one snapshot."""


class Broadcast:
    """A counter of changes that can be waited on."""

    def __init__(self) -> None:
        self.version = 0
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Note a change and wake all readers."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def beyond(self, version: int, *, timeout_s: float | None = None) -> bool:
        """Wait for a change after ``version``; return ``False`` when none came in time."""
        if self.version > version:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until ``reached`` holds, which is looked at after each change and each tick."""
        while not reached():
            await self.beyond(self.version, timeout_s=TICK_S)
