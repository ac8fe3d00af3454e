"""The clocks of this machine, behind an interface so that tests can move them."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is shown, monotonic time for what is measured."""

    def wall(self) -> float:
        """Return unix seconds; may step when the clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never step back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The real clocks."""

    def wall(self) -> float:
        """Return unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
