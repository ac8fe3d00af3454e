"""A server as a probe sees it: an engine at an address of a host, started by us or not."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from eaglemon.app.host import Host
from eaglemon.core.phases import DecodeStats
from eaglemon.engines import ENGINES
from eaglemon.engines.base import Engine
from eaglemon.errors import ProbeError, UsageError
from eaglemon.io.http import HttpClient, HttpLimits

_LIMITS = HttpLimits(connect_s=5.0, read_s=20.0)
_SHOWN_BODY = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """Where the load goes."""

    id: str
    """A server's id, or the URL."""
    engine: Engine
    model: str
    """Name the server knows its model by."""
    address: str
    port: int
    host: Host
    api_key: str | None = None
    lines_since: Callable[[float], tuple[DecodeStats, ...]] | None = None
    """Figures of the server's log lines read after a moment of the monotonic clock; ``None``
    where its log is not read or it does not speculate."""

    def new_http(self) -> HttpClient:
        """Return a client with connections of its own; raises ``HostError``."""
        return HttpClient(
            self.host.transport, address=self.address, port=self.port, api_key=self.api_key
        )

    @property
    def headers(self) -> dict[str, str]:
        """Fields that each request needs."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def is_url(text: str) -> bool:
    """Tell whether a person means an address and not a server of ours."""
    return "://" in text


async def recognise(url: str, host: Host, *, api_key: str | None = None) -> ProbeTarget:
    """Ask the server at ``url``, as seen from ``host``, which engine and model it is.

    Raises ``UsageError`` for an address that cannot be one, ``ProbeError`` for a server that is no
    engine we know and ``HttpError`` when nothing answers.
    """
    address, port = _place(url)
    http = HttpClient(host.transport, address=address, port=port, api_key=api_key)
    try:
        answer = await http.request("GET", "/v1/models", limits=_LIMITS)
    finally:
        await http.close()
    if answer.status in {401, 403}:
        raise ProbeError(
            f"{url} wants an API key", hint="put it into the environment and name it: --api-key-env"
        )
    owner, model = _first_model(answer.body) if answer.status == 200 else ("", "")
    engine = next((one for one in ENGINES.values() if one.measuring.owner == owner), None)
    if engine is None:
        said = answer.body[:_SHOWN_BODY].decode("utf-8", "replace")
        known = " or ".join(one.title for one in ENGINES.values())
        raise ProbeError(f"{url} is no {known} server: HTTP {answer.status}: {said}")
    return ProbeTarget(
        id=url,
        engine=engine,
        model=model,
        address=address,
        port=port,
        host=host,
        api_key=api_key,
    )


def _place(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url} is no URL: {error}") from error
    if parts.scheme != "http":
        raise UsageError(
            f"{url} is not asked", hint="write http://ADDRESS:PORT as the host sees it"
        )
    if not parts.hostname or parts.path.strip("/") or parts.query:
        raise UsageError(f"{url} is no address of a server", hint="write http://ADDRESS:PORT")
    return parts.hostname, port or 80


def _first_model(body: bytes) -> tuple[str, str]:
    try:
        model = json.loads(body)["data"][0]
        return str(model["owned_by"]), str(model["id"])
    except (ValueError, LookupError, TypeError):
        return "", ""
