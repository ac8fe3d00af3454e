"""Whether a host's sshd lets this console connect to the ports of servers there."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from eaglemon.errors import ForwardingRefusedError, HostError
from eaglemon.io.transport import Transport

LOOPBACK = "127.0.0.1"
_LIMIT_S = 3.0
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 -- compared with, not bound


async def forwarding_refusal(
    transport: Transport, ports: Iterable[int], *, address: str = LOOPBACK
) -> ForwardingRefusedError | None:
    """Return the refusal of the last port where none of them may be connected to.

    Whether something listens does not matter: a closed port shows as well that one may ask.
    """
    refusal = None
    for port in ports:
        try:
            async with asyncio.timeout(_LIMIT_S):
                stream = await transport.open_stream(
                    LOOPBACK if address in _WILDCARDS else address, port
                )
        except ForwardingRefusedError as error:
            refusal = error
            continue
        except (HostError, TimeoutError):
            return None
        with suppress(HostError):
            await stream.close()
        return None
    return refusal
