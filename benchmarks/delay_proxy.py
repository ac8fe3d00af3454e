"""A TCP proxy that delays every byte by half a round trip each way: a link to a distant host.

python benchmarks/delay_proxy.py --to 127.0.0.1:2222 --round-trip-ms 50
"""

import argparse
import asyncio
import sys


class Side(asyncio.Protocol):
    """One side of a connection; what it receives goes to the other side, later and in order."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass bytes on after the delay."""
        asyncio.get_running_loop().call_later(self.delay_s, self.pass_on, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side after what is still under way."""
        asyncio.get_running_loop().call_later(self.delay_s, self._close_other)

    def pass_on(self, data: bytes) -> None:
        """Give bytes to the other side, once there is one."""
        if self.other is None or self.other.transport is None:
            self.early.append(data)
            return
        for part in (*self.early, data):
            self.other.transport.write(part)
        self.early.clear()

    def _close_other(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def main() -> None:
    """Serve until stdin ends, having printed the port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", required=True)
    parser.add_argument("--round-trip-ms", type=float, default=50.0)
    given = parser.parse_args()
    address, _, port = given.to.rpartition(":")
    delay_s = given.round_trip_ms / 2000
    loop = asyncio.get_running_loop()
    joining: set[asyncio.Task[None]] = set()

    def accept() -> Side:
        near, far = Side(delay_s), Side(delay_s)

        async def join() -> None:
            await loop.create_connection(lambda: far, address, int(port))
            near.other, far.other = far, near
            near.pass_on(b"")

        task = loop.create_task(join())
        joining.add(task)
        task.add_done_callback(joining.discard)
        return near

    server = await loop.create_server(accept, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
