"""Waiting for a server that is only an address."""

import asyncio
from dataclasses import dataclass, field

from eaglemon.app.health import ask_health, ask_token
from eaglemon.app.host import Host
from eaglemon.app.probe_target import ProbeTarget, recognise
from eaglemon.core.foreign import Reached
from eaglemon.core.profiles import Limits
from eaglemon.core.server_url import Trust
from eaglemon.core.views import HealthVerdict
from eaglemon.errors import EaglemonError, HostError, ServerError, TimeLimitError, UsageError
from eaglemon.io.clock import Clock

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0
_BACK_OFF = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a server at a URL asks for, and what is asked of it."""

    api_key: str | None = field(default=None, repr=False)
    trust: Trust | None = None


async def wait_at(url: str, host: Host, clock: Clock, access: Access, *, limit_s: float) -> Reached:
    """Wait until the server at ``url``, as ``host`` sees it, has generated a token.

    Raises ``TimeLimitError`` after ``limit_s`` and ``UsageError`` for what is no URL.
    """
    began = clock.monotonic()
    asked, pause_s, last = 0, _FIRST_PAUSE_S, "no answer"
    try:
        async with asyncio.timeout(limit_s):
            while True:
                asked += 1
                try:
                    target = await recognise(url, host, api_key=access.api_key, trust=access.trust)
                    return await _reached(target, clock, began, asked)
                except (HostError, ServerError) as error:
                    last = error.message
                except UsageError:
                    raise
                except EaglemonError as error:
                    last = error.message  # It answers, and not yet as an engine does.
                await clock.sleep(pause_s)
                pause_s = min(pause_s * _BACK_OFF, _LONGEST_PAUSE_S)
    except TimeoutError as error:
        raise TimeLimitError(
            f"{url} is not ready after {limit_s:.0f} s: {last}", hint="wait longer with --timeout"
        ) from error


async def _reached(target: ProbeTarget, clock: Clock, began: float, asked: int) -> Reached:
    http, limits = target.new_http(), Limits()
    try:
        verdict, code, detail = await ask_health(
            http, target.engine, limits, limit_s=limits.health_total_s
        )
        if verdict is not HealthVerdict.OK:
            raise ServerError(f"health {code or verdict.value} {detail}".rstrip())
        await ask_token(http, target.engine, target.model, limit_s=limits.first_token_s)
    finally:
        await http.close()
    return Reached(
        url=target.id,
        host=target.host.spec.name,
        engine=target.engine.name,
        model=target.model,
        waited_s=clock.monotonic() - began,
        asked=asked,
    )
