"""Calibration: the same server with made-up accept lengths, which shows what a draft could give."""

from collections.abc import Callable, Sequence

from eaglemon.app.api import Eaglemon
from eaglemon.core.probe import ProbePlan, ProbeProgress
from eaglemon.core.views import LaunchPlan
from eaglemon.errors import EaglemonError, ServerError

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
    Raises ``ServerError`` before anything is stopped where an accept length cannot be forced, and
    the first error of several; the others are said.
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
        failed = await _start_as_it_was(console, current, usual, say)
    if failed is not None:
        raise failed
    return tuple(results)


async def _start_as_it_was(
    console: Eaglemon, current: str | None, usual: LaunchPlan, say: Callable[[str], None]
) -> EaglemonError | None:
    """Stop what runs now and start the usual server; say what fails, and return the last of it."""
    if current is not None:
        try:
            if not console.find(current).state.ended:
                say(f"stopping {current}")
                await console.stop(current)
        except EaglemonError as error:
            # It may be gone all the same; where it is not, the launch is refused.
            say(f"{current} may be left: {error}")
    say("starting the server as it was")
    try:
        again = await console.launch(usual, force=True)
        view = await console.wait(again)
    except EaglemonError as error:
        say(f"the server does not run as it was: {error}")
        return error
    say(f"{again} is {view.state}")
    return None
