"""The questions a server is asked to prove that it serves."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass

from eaglemon.core.profiles import Limits
from eaglemon.core.views import HealthVerdict
from eaglemon.engines.base import Engine, GenerateRequest
from eaglemon.errors import ServerError
from eaglemon.io.host_link import HostLink
from eaglemon.io.http import FailureKind, HttpClient, HttpError, HttpLimits

_VERDICTS = {
    FailureKind.REFUSED: HealthVerdict.REFUSED,
    FailureKind.TIMED_OUT: HealthVerdict.TIMED_OUT,
    FailureKind.BROKEN: HealthVerdict.BAD,
}
_SHOWN_BODY = 200
_SHOWN_COMMAND = 60


async def ask_health(
    http: HttpClient, engine: Engine, limits: Limits, *, limit_s: float
) -> tuple[HealthVerdict, int | None, str]:
    """Poll the health path once; return the verdict, the HTTP status and what went wrong.

    ``limit_s`` is that of the whole request, however it drips.
    """
    try:
        async with asyncio.timeout(limits.health_connect_s + limit_s):
            answer = await http.request(
                "GET",
                engine.endpoints.health,
                limits=HttpLimits(connect_s=limits.health_connect_s, read_s=limit_s),
            )
    except TimeoutError:
        return HealthVerdict.TIMED_OUT, None, f"no whole answer within {limit_s:.0f} s"
    except HttpError as error:
        return _VERDICTS[error.kind], None, error.message
    return engine.health_verdict(answer.status), answer.status, ""


async def ask_model(http: HttpClient, engine: Engine, limits: Limits) -> Mapping[str, object]:
    """Return what the server says of its (first) model; empty when it does not say."""
    answer = await http.request(
        "GET", engine.endpoints.models, limits=HttpLimits(read_s=limits.health_total_s)
    )
    if answer.status != 200:
        return {}
    try:
        card = json.loads(answer.body)["data"][0]
    except (ValueError, LookupError, TypeError):
        return {}
    return card if isinstance(card, dict) else {}


async def ask_token(http: HttpClient, engine: Engine, model: str, *, limit_s: float) -> None:
    """Have the server generate one token; raises ``ServerError`` when it does not."""
    call = engine.generate(GenerateRequest(prompt="Hello", model=model, max_tokens=1, stream=False))
    answer = await http.request(
        call.method, call.path, body=call.body, limits=HttpLimits(read_s=limit_s)
    )
    if answer.status != 200:
        body = answer.body[:_SHOWN_BODY].decode("utf-8", "replace").strip()
        raise ServerError(f"the first generation got HTTP {answer.status}: {body}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who answers on a server's port; by default not known."""

    ours: bool = False
    """A process of the run was seen to listen, and no other beside it."""
    stranger: str | None = None
    """Who listens in its place, in words."""


async def listener_on(link: HostLink, port: int, pids: frozenset[int]) -> Listener:
    """Say who answers on ``port``: one of ``pids``, another process, or nobody knows.

    Another server on the same port gives good answers for one that is failing. A listener whose
    process cannot be seen (another user's, another container's) proves nothing either way.
    """
    listeners = (await link.check_host(port=port)).listeners
    mine = [one.pid in pids for one in listeners if one.pid is not None]
    if mine and all(mine) and len(mine) == len(listeners):
        return Listener(ours=True)
    if any(mine) or len(mine) < len(listeners) or not listeners:
        return Listener()  # On another address of the same port, or not to be seen.
    other = listeners[0]
    command = f" ({other.command[:_SHOWN_COMMAND]})" if other.command else ""
    return Listener(
        stranger=f"port {port} is answered by PID {other.pid}{command}, which is not this server"
    )
