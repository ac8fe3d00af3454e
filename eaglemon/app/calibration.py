"""Calibration: the same server with made-up accept lengths, which shows what a draft could give."""

from collections.abc import Callable, Sequence

from eaglemon.app.api import Eaglemon
from eaglemon.core.probe import ProbePlan, ProbeProgress
from eaglemon.errors import ServerError

Seen = Callable[[ProbeProgress], None]


async def calibrate(
    console: Eaglemon,
    server_id: str,
    plan: ProbePlan,
    lengths: Sequence[float],
    *,
    say: Callable[[str], None],
    seen: Seen | None = None,
) -> tuple[ProbeProgress, ...]:
    """Probe the server once for each forced accept length, restarting it each time.

    Afterwards the server is started again as it was, whatever happened. ``say`` gets each step.
    Raises ``ServerError`` before anything is stopped where an accept length cannot be forced.
    """
    plans = [console.relaunch_plan(server_id, forced_length=length) for length in lengths]
    usual = console.relaunch_plan(server_id)
    results = []
    current: str | None = server_id
    try:
        for forced, length in zip(plans, lengths, strict=True):
            if current is not None:
                say(f"stopping {current}")
                await console.stop(current)
                current = None
            say(f"starting it with a forced accept length of {length:g}")
            # It ran beside what else there is a moment ago: nothing must keep it down now.
            current = await console.launch(forced, force=True)
            view = await console.wait(current)
            if not view.state.answering:
                raise ServerError(f"{current} did not start with a forced length: {view.detail}")
            results.append(await console.probe(current, plan, seen=seen))
    finally:
        if current is not None and not console.find(current).state.ended:
            say(f"stopping {current}")
            await console.stop(current)
        say("starting the server as it was")
        again = await console.launch(usual, force=True)
        view = await console.wait(again)
        say(f"{again} is {view.state}")
    return tuple(results)
