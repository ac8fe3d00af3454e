"""The HTTP library: all that knows httpx and httpcore. Importing this loads both (60 ms).

An httpcore network backend asks the transport for a byte stream to the host's loopback. All of
their exceptions end here, as ``HttpError``.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpcore
import httpx

from eaglemon.errors import ForwardingRefusedError, HostError
from eaglemon.io.http import MAX_ANSWER_BYTES, FailureKind, HttpError, HttpLimits
from eaglemon.io.tls import TlsStream
from eaglemon.io.transport import ByteStream, Transport

_CHUNK_BYTES = 65536
_UNPACKED = {"Accept-Encoding": "identity"}
"""A server that packs a stream holds back what is timed here."""


class HttpPool:
    """Connections to one server."""

    def __init__(
        self,
        transport: Transport,
        connections: int,
        *,
        base_url: str,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._client = httpx.AsyncClient(
            base_url=base_url,
            transport=_PooledTransport(transport, connections, tls),
            headers=headers,
            trust_env=False,
        )

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None,
        limits: HttpLimits,
        what: str,
    ) -> AsyncIterator["HttpStream"]:
        """Send a request and yield its answer as it arrives; raises ``HttpError`` of ``what``."""
        with _as_failures(what):
            async with self._client.stream(
                method, path, json=body, timeout=_timeout(limits), headers=_UNPACKED
            ) as answer:
                yield HttpStream(answer, what)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class HttpStream:
    """An answer that arrives in pieces."""

    def __init__(self, answer: httpx.Response, what: str) -> None:
        self._answer = answer
        self._what = what
        self.status = answer.status_code

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raises ``HttpError`` when it breaks off."""
        with _as_failures(self._what):
            async for chunk in self._answer.aiter_bytes():
                yield chunk

    async def whole(self) -> bytes:
        """Return all of the body; raises ``HttpError``, also where it has no end."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise HttpError(FailureKind.BROKEN, f"{self._what}: the answer has no end")
        return bytes(body)


class _as_failures:  # noqa: N801 -- a context manager that reads as a phrase at its uses
    """Map the library's exceptions, which are one tree per library, onto ``HttpError``."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HttpError) or error is None:
            return
        if isinstance(error, httpx.TimeoutException):
            raise HttpError(FailureKind.TIMED_OUT, f"{self._what}: no answer in time") from error
        if isinstance(error, httpx.ConnectError):
            raise HttpError(FailureKind.REFUSED, f"{self._what}: {error}") from error
        if isinstance(error, httpx.HTTPError | httpx.StreamError | httpx.InvalidURL):
            text = str(error) or type(error).__name__
            raise HttpError(FailureKind.BROKEN, f"{self._what}: {text}") from error


def _timeout(limits: HttpLimits) -> httpx.Timeout:
    return httpx.Timeout(limits.read_s, connect=limits.connect_s, pool=limits.connect_s)


class _PooledTransport(httpx.AsyncBaseTransport):
    """httpx over an httpcore pool whose connections the host's transport opens.

    httpx's own transport takes no network backend, so the pool is built here.
    """

    def __init__(self, transport: Transport, connections: int, tls: ssl.SSLContext | None) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            network_backend=_HostNetwork(transport),
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=4.0,  # SGLang and vLLM close idle connections after 5 s
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` through the pool."""
        assert isinstance(request.stream, httpx.AsyncByteStream)  # noqa: S101 -- httpx's contract
        core_request = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _core_errors():
            answer = await self._pool.handle_async_request(core_request)
        assert not isinstance(answer.stream, bytes)  # noqa: S101 -- httpcore's contract
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_AnswerStream(answer.stream),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close the pool."""
        await self._pool.aclose()


class _AnswerStream(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _core_errors():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class _core_errors:  # noqa: N801 -- see _as_failures
    """Map httpcore's exceptions onto httpx's, as httpx's own transport does."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, httpcore.TimeoutException):
            raise httpx.TimeoutException(str(error)) from error
        if isinstance(error, httpcore.ConnectError):
            raise httpx.ConnectError(str(error)) from error
        if isinstance(error, httpcore.NetworkError | httpcore.ProtocolError):
            text = str(error) or type(error).__name__
            raise httpx.ReadError(text) from error


class _HostNetwork(httpcore.AsyncNetworkBackend):
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Open a byte stream to ``host:port`` as seen from the host."""
        del local_address, socket_options

        try:
            async with asyncio.timeout(timeout):
                stream = await self._transport.open_stream(host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host}:{port} did not accept in time") from error
        except ForwardingRefusedError:
            raise  # No answer of the server's port: nobody was let through to it.
        except HostError as error:
            raise httpcore.ConnectError(error.message) from error
        return _HostStream(stream)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: engines listen on TCP."""
        raise httpcore.ConnectError(f"unix sockets are not used: {path}")

    async def sleep(self, seconds: float) -> None:
        """Wait between httpcore's own retries."""

        await asyncio.sleep(seconds)


class _HostStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._ended = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what has arrived."""

        try:
            async with asyncio.timeout(timeout):
                data = await self._stream.read(min(max_bytes, _CHUNK_BYTES))
        except TimeoutError as error:
            raise httpcore.ReadTimeout("nothing arrived in time") from error
        except HostError as error:
            raise httpcore.ReadError(error.message) from error
        self._ended = not data
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send ``buffer``."""

        try:
            async with asyncio.timeout(timeout):
                await self._stream.write(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout("the server does not read") from error
        except HostError as error:
            raise httpcore.WriteError(error.message) from error

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Speak TLS with the server, over the host's own connection."""
        stream = TlsStream(self._stream, ssl_context, server_hostname or "")
        try:
            async with asyncio.timeout(timeout):
                await stream.handshake()
        except TimeoutError as error:
            await stream.close()
            raise httpcore.ConnectTimeout("no TLS in time") from error
        except HostError as error:
            await stream.close()
            raise httpcore.ConnectError(error.message) from error
        return _HostStream(stream)

    def get_extra_info(self, info: str) -> Any:
        """Tell whether the server has closed: an answer may end by that, without a word before.

        Of sockets, which a byte stream need not have, nothing is told.
        """
        return self._ended if info == "is_readable" else None
