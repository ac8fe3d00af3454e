"""One command of a host from its start to its end, within a limit: the same for all transports."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from eaglemon.errors import TimeLimitError
from eaglemon.io.transport import Completed


class Command(Protocol):
    """A process that was started."""

    async def communicate(self, stdin: bytes) -> Completed:
        """Send all of ``stdin`` and return what came."""
        ...

    async def close(self) -> None:
        """End it; never raises."""
        ...


async def run_to_end(
    opened: Callable[[str], Awaitable[Command]],
    command: str,
    *,
    host: str,
    stdin: bytes,
    timeout_s: float,
) -> Completed:
    """Start ``command`` with ``opened`` and return how it ended.

    Raises ``TimeLimitError`` after ``timeout_s``, and what ``opened`` raises.
    """
    process: Command | None = None
    try:
        async with asyncio.timeout(timeout_s):
            # An sshd that has logged us in may still never open the channel.
            process = await opened(command)
            return await process.communicate(stdin)
    except TimeoutError as error:
        raise TimeLimitError(
            f"a command on {host} did not end within {timeout_s:g} s: {command[:80]}"
        ) from error
    finally:
        if process is not None:
            await process.close()
