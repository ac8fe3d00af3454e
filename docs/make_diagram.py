"""Writes the state diagram of docs/lifecycle.md from the machine itself: run it after a change.

Each state is entered in all its variants, each event is tried in it, and what happens is drawn.
"""

import itertools
import sys
from pathlib import Path

from eaglemon.core.lifecycle import RULES, UNHEALTHY_AFTER, ServerMachine
from eaglemon.core.lifecycle_events import (
    CountersMoved,
    Event,
    Generated,
    GenerationStuck,
    HealthSeen,
    LaunchAsked,
    LinkLost,
    MemoryBack,
    MemoryUnseen,
    PortTaken,
    PreflightFailed,
    PreflightPassed,
    RunMissing,
    Spawned,
    SpawnFailed,
    StatusSeen,
    StopAsked,
    StopFailed,
    Timer,
    TimerFired,
    TokenFailed,
    TokenSeen,
)
from eaglemon.core.profiles import Limits
from eaglemon.core.runs import RunExit, RunStop
from eaglemon.core.views import HealthVerdict, ServerState

PAGE = Path(__file__).with_name("lifecycle.md")
BEGIN, END = "<!-- diagram: docs/make_diagram.py -->", "<!-- end of diagram -->"

_STOP = RunStop(requested_at=1.0, grace_s=1.0)
_GONE = RunStop(requested_at=1.0, grace_s=1.0, gone_at=2.0)
_LEFT = RunStop(requested_at=1.0, grace_s=1.0, left=(7,))
EVENTS: dict[str, tuple[Event, ...]] = {
    "launch asked": (LaunchAsked(),),
    "preflight passed": (PreflightPassed(),),
    "preflight failed": (PreflightFailed(reason="x"),),
    "spawned": (Spawned(pid=7),),
    "spawn failed": (SpawnFailed(reason="x"),),
    "processes seen": (StatusSeen(living=1),),
    "exit seen": (StatusSeen(living=0, exit=RunExit(code=1, at=0.5)),),
    "stop seen": (StatusSeen(living=1, stop=_STOP),),
    "gone after a stop": (StatusSeen(living=0, stop=_GONE),),
    "survivors of KILL": (StatusSeen(living=1, stop=_LEFT),),
    "run unknown to the host": (RunMissing(),),
    "port taken": (PortTaken(),),
    "health good": (HealthSeen(verdict=HealthVerdict.OK),),
    "health bad": (HealthSeen(verdict=HealthVerdict.TIMED_OUT),),
    "health silent": (HealthSeen(verdict=HealthVerdict.TIMED_OUT, silent_s=1e9),),
    "health answers": (HealthSeen(verdict=HealthVerdict.STARTING),),
    "token": (TokenSeen(),),
    "no token": (TokenFailed(reason="x"),),
    "does not generate": (GenerationStuck(reason="x"),),
    "generates": (Generated(),),
    "counters move": (CountersMoved(),),
    "stop asked": (StopAsked(grace_s=1.0),),
    "stop failed": (StopFailed(reason="x"),),
    "memory back": (MemoryBack(),),
    "memory not to be seen": (MemoryUnseen(reason="x"),),
    "link lost": (LinkLost(reason="x"),),
    "not ready in time": (TimerFired(timer=Timer.READY),),
    "memory not back in time": (TimerFired(timer=Timer.RELEASE),),
}


def moves() -> dict[tuple[ServerState, ServerState], set[str]]:
    """Return the events by which each state changes into another."""
    found: dict[tuple[ServerState, ServerState], set[str]] = {}
    for state, (name, events) in itertools.product(ServerState, EVENTS.items()):
        for machine, event in itertools.product(_variants(state), events):
            machine.handle(event)
            if machine.state is not state:
                found.setdefault((state, machine.state), set()).add(name)
    return found


def untried() -> set[type[object]]:
    """Return the kinds of events that have a rule and no sample here."""
    samples = {type(event) for events in EVENTS.values() for event in events}
    return {kind for _, kind in RULES} - samples


def diagram() -> str:
    """Return the diagram as Mermaid text, between the marks of the page."""
    lines = [BEGIN, "", "```mermaid", "stateDiagram-v2", "    [*] --> preflight"]
    order = list(EVENTS)
    for (before, after), names in sorted(moves().items()):
        if "health bad" in names:
            names -= {"health silent", "health answers"}  # two kinds of it
        words = ", ".join(sorted(names, key=order.index))
        lines.append(f"    {before} --> {after}: {words}")
    lines += [f"    {state} --> [*]" for state in sorted(ServerState) if state.ended]
    return "\n".join([*lines, "```", "", END])


def fresh(page: str) -> str:
    """Return the page with the diagram as it must be."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{diagram()}{tail}"


def _variants(state: ServerState) -> list[ServerMachine]:
    machines = []
    losses = [one for one in ServerState if (one, LinkLost) in RULES]
    for was_ready, bad_polls, hung, silent, before in itertools.product(
        (False, True),
        (0, UNHEALTHY_AFTER - 1),
        (False, True),
        (False, True),
        losses if state is ServerState.LOST else [ServerState.STARTING],
    ):
        if state in {ServerState.READY, ServerState.BUSY} and not was_ready:
            continue
        machine = ServerMachine(Limits())
        machine.enter(state)
        machine.was_ready, machine.bad_polls, machine.hung = was_ready, bad_polls, hung
        machine.silent, machine.before_loss = silent and not was_ready, before
        machines.append(machine)
    return machines


def main() -> int:
    """Rewrite the page."""
    PAGE.write_text(fresh(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
