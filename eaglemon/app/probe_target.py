"""A server as a probe sees it: an engine at an address of a host, started by us or not."""

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from eaglemon.app.host import Host
from eaglemon.core.phases import DecodeStats
from eaglemon.core.server_url import ServerUrl, Trust, parse_server_url
from eaglemon.engines import ENGINES
from eaglemon.engines.base import Engine
from eaglemon.errors import ProbeError
from eaglemon.io.http import FailureKind, HttpClient, HttpError, HttpLimits
from eaglemon.io.tls import context_of

_LIMITS = HttpLimits(connect_s=5.0, read_s=20.0)
_SHOWN_BODY = 80
_MODELS = "/v1/models"
_BAD_REQUEST = 400
"""What servers with TLS answer a request without, if anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """Where the load goes."""

    id: str
    """A server's id, or the URL."""
    engine: Engine
    model: str
    """Name the server knows its model by."""
    url: ServerUrl
    host: Host
    api_key: str | None = field(default=None, repr=False)
    trust: Trust | None = None
    """Where the URL is ``https``."""
    tls: ssl.SSLContext | None = None
    """What ``trust`` amounts to on this machine."""
    lines_since: Callable[[float], tuple[DecodeStats, ...]] | None = None
    """Figures of the server's log lines read after a moment of the monotonic clock; ``None``
    where its log is not read or it does not speculate."""

    def new_http(self) -> HttpClient:
        """Return a client with connections of its own; raises ``HostError``."""
        return HttpClient(
            self.host.transport,
            address=self.url.address,
            port=self.url.port,
            api_key=self.api_key,
            prefix=self.url.prefix,
            tls=self.tls,
        )

    @property
    def headers(self) -> dict[str, str]:
        """Fields that each request needs."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


async def recognise(
    text: str, host: Host, *, api_key: str | None = None, trust: Trust | None = None
) -> ProbeTarget:
    """Ask the server at a URL, as seen from ``host``, which engine and model it is.

    Raises ``UsageError`` for an address that cannot be one, ``ProbeError`` for a server that is no
    engine we know and ``HttpError`` when nothing answers.
    """
    url = parse_server_url(text)
    believed = (trust or Trust()) if url.scheme == "https" else None
    tls = await asyncio.to_thread(context_of, believed) if believed else None
    http = HttpClient(
        host.transport,
        address=url.address,
        port=url.port,
        api_key=api_key,
        prefix=url.prefix,
        tls=tls,
    )
    try:
        answer = await http.request("GET", _MODELS, limits=_LIMITS)
    except HttpError as error:
        if error.kind is FailureKind.BROKEN and url.scheme == "http":
            await _check_for_tls(text, url, host)
        raise
    finally:
        await http.close()
    if answer.status == _BAD_REQUEST and url.scheme == "http":
        await _check_for_tls(text, url, host)
    if answer.status in {401, 403}:
        raise ProbeError(
            f"{text} wants an API key",
            hint="put it into the environment and name it: --api-key-env",
        )
    owner, model = _first_model(answer.body) if answer.status == 200 else ("", "")
    engine = next((one for one in ENGINES.values() if one.measuring.owner == owner), None)
    if engine is None:
        said = answer.body[:_SHOWN_BODY].decode("utf-8", "replace")
        known = " or ".join(one.title for one in ENGINES.values())
        raise ProbeError(f"{text} is no {known} server: HTTP {answer.status}: {said}")
    return ProbeTarget(
        id=text,
        engine=engine,
        model=model,
        url=url,
        host=host,
        api_key=api_key,
        trust=believed,
        tls=tls,
    )


async def _check_for_tls(text: str, url: ServerUrl, host: Host) -> None:
    """Raise ``ProbeError`` where the port that a plain URL names speaks TLS; no key is sent."""
    tls = await asyncio.to_thread(context_of, Trust(verify=False))
    http = HttpClient(host.transport, address=url.address, port=url.port, tls=tls)
    try:
        await http.request("GET", _MODELS, limits=_LIMITS)
    except HttpError:
        return
    finally:
        await http.close()
    raise ProbeError(f"{text}: this port speaks TLS", hint=f"write https{text[len('http') :]}")


def _first_model(body: bytes) -> tuple[str, str]:
    try:
        model = json.loads(body)["data"][0]
        return str(model["owned_by"]), str(model["id"])
    except (ValueError, LookupError, TypeError):
        return "", ""
