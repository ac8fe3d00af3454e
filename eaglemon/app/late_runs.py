"""Launches whose end is not known: the host did not say whether it started the run."""

from typing import Protocol

from eaglemon.app.host import Host
from eaglemon.core.lifecycle_events import Event, LinkLost, RunMissing
from eaglemon.core.runs import RunRecord, RunStatus
from eaglemon.core.views import ServerState
from eaglemon.errors import AgentError, EaglemonError, HostError, LinkLostError, TimeLimitError
from eaglemon.io.clock import Clock

ASK_AGAIN_S = 5.0


class Launched(Protocol):
    """What is known of a run that was asked for (``eaglemon.app.keeper.Keeper``)."""

    id: str
    host: Host
    record: RunRecord | None
    status: RunStatus | None

    @property
    def state(self) -> ServerState:
        """The state of its machine."""
        ...

    def feed(self, event: Event) -> None:
        """Give the machine an event."""
        ...

    def status_seen(self, status: RunStatus) -> None:
        """Take the host's account of the run."""
        ...


def may_have_begun(error: EaglemonError, *, sent: bool) -> bool:
    """Tell whether a run may begin although its launch ended with ``error``.

    ``sent``: the host was asked to start it.
    """
    if isinstance(error, LinkLostError):
        return True
    late = isinstance(error, AgentError) and error.kind == "spawn-late"
    return sent and (late or isinstance(error, TimeLimitError))


def never_began(run: Launched) -> bool:
    """Tell whether a launch failed before a process was known: one may come late all the same."""
    known = run.record is not None and run.record.pid is not None
    return run.state is ServerState.FAILED and not known


async def find_out(run: Launched, reason: str, clock: Clock) -> None:
    """Wait for the host's account of a run that it may have started, whatever ``reason`` says.

    The host is asked until it knows the run, all of which its account then tells, or does not. A
    link that is lost ends the asking: once it is back that account is given anew.
    """
    run.feed(LinkLost(reason=reason))
    if run.status is not None:
        run.status_seen(run.status)
    while run.state is ServerState.LOST:
        await clock.sleep(ASK_AGAIN_S)
        try:
            await run.host.link.log_tail(run.id, lines=0)
        except TimeLimitError:
            continue
        except AgentError as error:
            if error.kind == "no-such-run":
                run.feed(RunMissing())
        except HostError:
            return
        return
