"""Reads one server's metrics path again and again and gives the readings to its meter."""

from collections.abc import Callable

from eaglemon.app.meter import Meter
from eaglemon.core.prometheus import parse_metrics
from eaglemon.engines.base import Engine, Gauges
from eaglemon.errors import HostError
from eaglemon.io.clock import Clock
from eaglemon.io.http import FailureKind, HttpClient, HttpError, HttpLimits

INTERVAL_S = 2.0
_LIMITS = HttpLimits(connect_s=3.0, read_s=10.0)


async def read_gauges(
    http: HttpClient, engine: Engine, *, limits: HttpLimits = _LIMITS
) -> Gauges | None:
    """Return one reading, ``None`` when metrics are not served; raises ``HostError``."""
    path = engine.endpoints.metrics
    answer = await http.request("GET", path, limits=limits)
    if answer.status != 200:
        return None
    if answer.body and not answer.body.endswith(b"\n"):
        # Every line ends: half a number would be taken for a counter that fell.
        raise HttpError(FailureKind.BROKEN, f"GET {path}: the answer was cut off")
    return engine.gauges(parse_metrics(answer.body.decode("utf-8", "replace")))


async def follow_metrics(
    http: Callable[[], HttpClient],
    engine: Engine,
    meter: Meter,
    clock: Clock,
    seen: Callable[[bool], None],
) -> None:
    """Read for ever; ``seen`` is called after each reading with whether counters moved."""
    while True:
        moved = False
        try:
            gauges = await read_gauges(http(), engine)
        except HostError as error:
            meter.missing = error.message
        else:
            if gauges is None:
                meter.missing = engine.metrics_hint
            else:
                moved = meter.scrape_seen(gauges, at=clock.monotonic(), wall=clock.wall())
        seen(moved)
        await clock.sleep(INTERVAL_S)
