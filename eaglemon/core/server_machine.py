"""What a server's life is kept in, and the table of its rules.

``ServerMachine.handle(event)`` applies the rule for its state and the event's type and returns
commands. The rules themselves are in ``lifecycle.py`` and ``lifecycle_health.py``; whoever needs
them imports ``ServerMachine`` from ``lifecycle``.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from eaglemon.core.lifecycle_events import Command, Event
from eaglemon.core.profiles import Limits
from eaglemon.core.runs import RunExit, RunStop
from eaglemon.core.views import ServerState


class ServerMachine:
    """The life of one server; anybody may read its attributes, only rules write them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.state = ServerState.PREFLIGHT
        self.detail = ""
        """Why it is in this state, in words, where the state does not say it."""
        self.exit: RunExit | None = None
        self.stop: RunStop | None = None
        self.was_ready = False
        self.release_proven = False
        """The GPU memory was seen to be back after the stop, or there is no driver to ask."""
        self.memory_unseen = ""
        """Why it could not be seen whether the run held GPU memory."""
        self.bad_polls = 0
        self.hung = False
        """It was seen not to generate; only a generation takes that back."""
        self.silent = False
        """Its port is open and nothing was answered for ``limits.hung_s``, before it was ready."""
        self.pause_s = limits.health_interval_s
        """Until the next poll of a start."""
        self.before_loss = ServerState.STARTING
        self.stop_wanted_s: float | None = None
        """The grace of a stop that was asked for while the host was starting the run."""
        self.story: list[tuple[ServerState, str, ServerState]] = []
        """Every change of state with the event that caused it."""

    def handle(self, event: Event) -> list[Command]:
        """Take one event and return what to do now."""
        rule = RULES.get((self.state, type(event)))
        if rule is None:
            return []
        before = self.state
        commands = rule(self, event)
        if self.state is not before:
            self.story.append((before, type(event).__name__, self.state))
        return commands

    def enter(self, state: ServerState, detail: str = "") -> None:
        """Change to ``state``."""
        self.state = state
        self.detail = detail


_E = TypeVar("_E", bound=Event)
Rule: TypeAlias = Callable[[ServerMachine, _E], list[Command]]
RULES: dict[tuple[ServerState, type[object]], Rule[Any]] = {}
"""Every pair of state and event that means something; filled by ``on`` below."""
RUNNING = (
    ServerState.STARTING,
    ServerState.WARMING,
    ServerState.READY,
    ServerState.BUSY,
    ServerState.UNHEALTHY,
)
"""The states in which the server's processes are expected to live."""


def on(event: type[_E], *states: ServerState) -> Callable[[Rule[_E]], Rule[_E]]:
    """Register a rule for ``event`` in each of ``states``."""

    def register(rule: Rule[_E]) -> Rule[_E]:
        for state in states:
            RULES[state, event] = rule
        return rule

    return register
