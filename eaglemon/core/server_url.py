"""Addresses of servers as typed: scheme, place and the path that a gateway puts before an engine's.

``https://gw:8443/team/v1`` is the engine's ``/v1`` at ``/team`` of a gateway.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from eaglemon.errors import UsageError

_PORTS = {"http": 80, "https": 443}
_WRITE = "write http://ADDRESS:PORT or https://NAME, as the host sees it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Which certificates of servers are believed."""

    verify: bool = True
    ca_pem: str | None = None
    """Certificates of authorities, in place of those of the machine that connects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUrl:
    """Where a server is."""

    scheme: str
    """``http`` or ``https``."""
    address: str
    port: int
    prefix: str = ""
    """Goes before the engine's own paths: empty, or with a leading and no trailing slash."""

    @property
    def authority(self) -> str:
        """As the field ``Host`` has it: without the port where that is the scheme's own."""
        name = f"[{self.address}]" if ":" in self.address else self.address
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def base(self) -> str:
        """The URL before the engine's own paths."""
        return f"{self.scheme}://{self.authority}{self.prefix}"


def is_url(text: str) -> bool:
    """Tell whether this means an address rather than a server's id or name."""
    return "://" in text


def parse_server_url(url: str) -> ServerUrl:
    """Return what ``url`` says; raises ``UsageError`` for what is no address of a server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{_shown(url)} is no URL: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"{_shown(url)} holds credentials, which results and logs would repeat",
            hint="put the key into the environment and name it: --api-key-env",
        )
    if parts.scheme not in _PORTS:
        raise UsageError(f"{url} is not asked", hint=_WRITE)
    if not parts.hostname or parts.query or parts.fragment or " " in url:
        raise UsageError(f"{url} is no address of a server", hint=_WRITE)
    # What OpenAI clients call the base URL ends in /v1, with which engines' own paths begin.
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return ServerUrl(
        scheme=parts.scheme,
        address=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        prefix=prefix,
    )


def _shown(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
