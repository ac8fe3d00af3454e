"""The one table of actions: key bindings, key line, command palette and help are made from it."""

from collections.abc import Callable
from dataclasses import dataclass

from eaglemon.core.views import ServerState, ServerView


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What decides whether an action can be carried out now."""

    screen: str
    """``fleet`` or ``server``."""
    server: ServerView | None = None
    """The server that an action would be about."""
    hosts: int = 0
    profiles: int = 0
    read_only: bool = False
    paused: bool = False
    filtered: bool = False
    """The filter line of the fleet is shown."""
    probing: bool = False
    """A probe of that server, started here, is under way."""


WhyNot = Callable[[Scene], str | None]
"""Returns why an action cannot be carried out, ``None`` when it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something a person can do; the method ``id`` of ``Deeds`` does it."""

    id: str
    keys: tuple[str, ...]
    """Textual key names; the first is the one that is shown."""
    label: str
    """One word for the key line."""
    title: str
    """A sentence for palette and help."""
    why_not: WhyNot
    important: bool = True
    """Shown in the key line."""


def shown_key(action: Action) -> str:
    """Return the key as people write it."""
    names = {
        "question_mark": "?",
        "slash": "/",
        "colon": ":",
        "escape": "esc",
        "left_square_bracket": "[",
        "right_square_bracket": "]",
    }
    return names.get(action.keys[0], action.keys[0])


def _always(_: Scene) -> str | None:
    return None


def _start(scene: Scene) -> str | None:
    if scene.read_only:
        return "this console is read-only: start it without --read-only to launch servers"
    if not scene.hosts:
        return "no hosts: name one on the command line or in hosts.toml"
    if not scene.profiles:
        return "no profiles could be read: see eaglemon profiles"
    return None


def _with_server(scene: Scene) -> str | None:
    if scene.server is None:
        return "no server is selected: start one with s, or select one in the list"
    return None


def _stop(scene: Scene) -> str | None:
    missing = _with_server(scene)
    if missing or scene.server is None:
        return missing
    if scene.read_only:
        return "this console is read-only: start it without --read-only to stop servers"
    if scene.server.state.ended:
        return f"{scene.server.name} has ended already: nothing to stop"
    return None


def _probe(scene: Scene) -> str | None:
    missing = _with_server(scene)
    if missing or scene.server is None:
        return missing
    if scene.read_only:
        return "this console is read-only: a probe would put load on the server"
    if scene.probing:
        return f"a probe of {scene.server.name} is under way: cancel it with x"
    if not scene.server.state.answering and scene.server.state is not ServerState.UNHEALTHY:
        return f"{scene.server.name} is {scene.server.state}: only a ready server can be probed"
    return None


def _cancel_probe(scene: Scene) -> str | None:
    return None if scene.probing else "no probe of this server is under way: start one with t"


def _on_fleet(scene: Scene) -> str | None:
    return None if scene.screen == "fleet" else "only in the list of hosts: go back with esc"


def _open(scene: Scene) -> str | None:
    return _with_server(scene) if scene.screen == "fleet" else "this server is open already"


def _back(scene: Scene) -> str | None:
    if scene.screen != "fleet" or scene.filtered:
        return None
    return "this is the first screen: q quits"


ACTIONS: tuple[Action, ...] = (
    Action(id="start", keys=("s",), label="start", title="Start a server", why_not=_start),
    Action(
        id="stop",
        keys=("S",),
        label="stop",
        title="Stop the server: TERM, time to end, KILL, wait for the memory",
        why_not=_stop,
    ),
    Action(
        id="kill",
        keys=("K",),
        label="kill",
        title="Kill the server: the same with little time to end",
        why_not=_stop,
    ),
    Action(id="probe", keys=("t",), label="probe", title="Probe the server", why_not=_probe),
    Action(
        id="cancel_probe",
        keys=("x",),
        label="cancel probe",
        title="Cancel the probe of the server",
        why_not=_cancel_probe,
        important=False,
    ),
    Action(
        id="open", keys=("o",), label="open", title="Open the server (also enter)", why_not=_open
    ),
    Action(id="log", keys=("l",), label="log", title="Read the server's log", why_not=_with_server),
    Action(
        id="copy",
        keys=("y",),
        label="copy command",
        title="Copy the server's command line",
        why_not=_with_server,
    ),
    Action(
        id="processes",
        keys=("i",),
        label="processes",
        title="Show or hide the processes on the GPUs",
        why_not=_on_fleet,
    ),
    Action(
        id="filter",
        keys=("slash",),
        label="filter",
        title="Show only hosts and servers whose name contains a text",
        why_not=_on_fleet,
    ),
    Action(
        id="pause",
        keys=("p",),
        label="pause",
        title="Freeze the picture, or let it go on",
        why_not=_always,
    ),
    Action(
        id="previous_tab",
        keys=("left_square_bracket",),
        label="tab",
        title="Go to the previous tab or panel",
        why_not=_always,
        important=False,
    ),
    Action(
        id="next_tab",
        keys=("right_square_bracket",),
        label="tab",
        title="Go to the next tab or panel",
        why_not=_always,
        important=False,
    ),
    Action(
        id="theme",
        keys=("T",),
        label="theme",
        title="Use the next theme",
        why_not=_always,
        important=False,
    ),
    Action(id="back", keys=("escape",), label="back", title="Go back", why_not=_back),
    Action(
        id="palette",
        keys=("colon", "ctrl+p"),
        label="commands",
        title="Search all commands",
        why_not=_always,
    ),
    Action(
        id="help",
        keys=("question_mark", "f1"),
        label="help",
        title="Explain keys and signs",
        why_not=_always,
    ),
    Action(
        id="quit",
        keys=("q", "ctrl+q"),
        label="quit",
        title="Quit: servers keep running",
        why_not=_always,
    ),
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
