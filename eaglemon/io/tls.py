"""TLS over a byte stream of any transport, so that ``https`` works through a host's connection."""

import ssl
from pathlib import Path

from eaglemon.core.server_url import Trust
from eaglemon.errors import HostError, UsageError
from eaglemon.io.transport import ByteStream

_READ_BYTES = 65536
_PEM = "give a PEM file, with lines BEGIN CERTIFICATE"


def read_authorities(path: Path) -> str:
    """Return the certificates in a PEM file; raises ``UsageError`` where there are none."""
    try:
        text = path.read_text(encoding="ascii")
        ssl.create_default_context(cadata=text)
    except OSError as error:  # What ssl raises is one, too.
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
        raise UsageError(f"--ca {path}: {str(reason).lower()}", hint=_PEM) from error
    except ValueError as error:
        raise UsageError(f"--ca {path}: holds no certificate", hint=_PEM) from error
    return text


def context_of(trust: Trust) -> ssl.SSLContext:
    """Return the settings for a client; reads files, and thus blocks."""
    context = ssl.create_default_context(cadata=trust.ca_pem)
    if not trust.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class TlsStream:
    """A ``ByteStream`` that speaks TLS over another one; ``handshake`` comes first."""

    def __init__(self, stream: ByteStream, context: ssl.SSLContext, server_name: str) -> None:
        self._stream = stream
        self._name = server_name
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=server_name)

    async def handshake(self) -> None:
        """Agree on keys and check the certificate; raises ``HostError`` that says what to do."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except ssl.SSLCertVerificationError as error:
                await self._flush()
                raise HostError(
                    f"the certificate of {self._name} is not trusted: {error.verify_message}: "
                    "name its authority with --ca FILE, or take any with --insecure"
                ) from error
            except ssl.SSLError as error:
                raise HostError(
                    f"{self._name} does not speak TLS here: {error.reason or error}"
                ) from error
            else:
                await self._flush()
                return

    async def read(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes, ``b""`` at the end."""
        while True:
            try:
                return self._tls.read(limit)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            except ssl.SSLError as error:
                raise HostError(f"TLS with {self._name} broke: {error.reason or error}") from error

    async def write(self, data: bytes) -> None:
        """Send ``data``."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._tls.write(rest) :]
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except ssl.SSLError as error:
                raise HostError(f"TLS with {self._name} broke: {error.reason or error}") from error
        await self._flush()

    def write_eof(self) -> None:
        """Do nothing: TLS has no half-closed connections that servers agree on."""

    async def close(self) -> None:
        """Close both sides."""
        await self._stream.close()

    async def _flush(self) -> None:
        if data := self._leaving.read():
            await self._stream.write(data)

    async def _receive(self) -> None:
        if data := await self._stream.read(_READ_BYTES):
            self._arrived.write(data)
        else:
            self._arrived.write_eof()
