"""HTTP to a server on a host, through the host's own connection.

No port is opened on the client and none needs to be open on the host. The library behind it is
known to ``http_pool`` alone, which is loaded with the first request: a console without servers
needs neither its time nor its memory.
"""

import asyncio
import importlib
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import TYPE_CHECKING

from eaglemon.errors import HostError
from eaglemon.io.transport import Transport

if TYPE_CHECKING:
    from eaglemon.io.http_pool import HttpPool, HttpStream

MAX_ANSWER_BYTES = 64 << 20
"""A complete answer that is longer is none that we asked for."""


class FailureKind(StrEnum):
    """Why a request got no answer."""

    REFUSED = "refused"
    TIMED_OUT = "timed out"
    BROKEN = "broken off"


class HttpError(HostError):
    """A request that got no complete answer."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Time limits of one request, in seconds."""

    connect_s: float = 3.0
    read_s: float = 25.0
    """Longest silence; for short answers the limit of the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A complete answer."""

    status: int
    body: bytes


class HttpClient:
    """One client of one server; requests at the same time use connections of their own."""

    def __init__(
        self,
        transport: Transport,
        *,
        address: str,
        port: int,
        api_key: str | None = None,
        connections: int = 8,
        prefix: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``prefix`` goes before all paths; ``tls`` makes it ``https``."""
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        name = f"[{address}]" if ":" in address else address
        self._where = f"{name}:{port}{prefix}"
        self._headers = headers
        self._transport, self._connections, self._tls = transport, connections, tls
        self._library: ModuleType | None = None
        self._pool: HttpPool | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        limits: HttpLimits,
    ) -> HttpAnswer:
        """Send a request and read the whole answer; raises ``HttpError``.

        Raises ``ForwardingRefusedError`` where the host's sshd lets nobody through to its ports.

        ``limits.read_s`` bounds the whole of it: a server that sends a byte now and then does not
        hold it for ever.
        """
        what = f"{method} {self._where}{path}"
        try:
            async with asyncio.timeout(limits.connect_s + limits.read_s):
                async with self.stream(method, path, body=body, limits=limits) as answer:
                    return HttpAnswer(status=answer.status, body=await answer.whole())
        except TimeoutError as error:
            raise HttpError(FailureKind.TIMED_OUT, f"{what}: no whole answer in time") from error

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, body: Mapping[str, object] | None, limits: HttpLimits
    ) -> AsyncIterator["HttpStream"]:
        """Send a request and yield its answer as it arrives; raises ``HttpError``."""
        pool = await self._opened()
        what = f"{method} {self._where}{path}"
        async with pool.stream(method, path, body=body, limits=limits, what=what) as answer:
            yield answer

    async def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            await self._pool.close()

    async def _opened(self) -> "HttpPool":
        if self._library is None:
            name = "eaglemon.io.http_pool"
            self._library = await asyncio.to_thread(importlib.import_module, name)
        if self._pool is None:
            self._pool = self._library.HttpPool(
                self._transport,
                self._connections,
                base_url=f"{'http' if self._tls is None else 'https'}://{self._where}",
                headers=self._headers,
                tls=self._tls,
            )
        return self._pool
