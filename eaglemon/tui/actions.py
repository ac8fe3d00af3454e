"""The one table of actions: bindings, key line, command palette, help and docs are made of it."""

from dataclasses import dataclass

from eaglemon.tui import scene as why
from eaglemon.tui.scene import Scene, WhyNot

__all__ = ["ACTIONS", "BY_ID", "Action", "Scene", "shown_key"]


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
    screens: tuple[str, ...] = ()
    """Where it is shown in the key line; empty: everywhere."""


_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "colon": ":",
    "escape": "esc",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "ampersand": "&",
}


def shown_key(action: Action) -> str:
    """Return the key as people write it."""
    return _NAMES.get(action.keys[0], action.keys[0])


def _action(
    id: str,  # noqa: A002 (the name of the field)
    keys: str,
    label: str,
    title: str,
    why_not: WhyNot,
    *screens: str,
    important: bool = True,
) -> Action:
    return Action(
        id=id,
        keys=tuple(keys.split()),
        label=label,
        title=title,
        why_not=why_not,
        important=important,
        screens=screens,
    )


ACTIONS: tuple[Action, ...] = (
    _action(
        "start",
        "s",
        "start",
        "Start a server",
        why.start,
        "fleet",
        "host",
        "server",
        "profiles",
    ),
    _action(
        "stop",
        "S",
        "stop",
        "Stop the server: TERM, time to end, KILL, wait for the memory",
        why.stop,
        "fleet",
        "host",
        "server",
        "log",
    ),
    _action(
        "kill",
        "K",
        "kill",
        "Kill the server: the same with little time to end",
        why.stop,
        "fleet",
        "host",
        "server",
        "log",
    ),
    _action(
        "restart",
        "R",
        "restart",
        "Restart the server: stop it, prove it gone, start the same again",
        why.restart,
        "server",
        "log",
    ),
    _action(
        "ab",
        "b",
        "A/B",
        "Compare two profiles: restart, measure, say which is faster",
        why.compare,
        "fleet",
        "server",
        "runs",
    ),
    _action(
        "probe",
        "t",
        "probe",
        "Probe the server",
        why.probe,
        "fleet",
        "server",
    ),
    _action(
        "cancel",
        "x",
        "cancel",
        "Cancel the probe of the server, or the experiment",
        why.cancel,
        important=False,
    ),
    _action(
        "open",
        "o",
        "open",
        "Open the server (also enter)",
        why.open_server,
        "fleet",
    ),
    _action(
        "log",
        "l",
        "log",
        "Read the server's log",
        why.log,
        "fleet",
        "server",
        "host",
    ),
    _action(
        "host",
        "h",
        "host",
        "Open the host: its GPUs over time, processes, servers",
        why.with_host,
        "fleet",
        "server",
    ),
    _action(
        "filter",
        "slash",
        "filter",
        "Filter rows by a text; search a log",
        why.filter_rows,
        "fleet",
        "runs",
        "profiles",
        "log",
    ),
    _action(
        "runs",
        "u",
        "runs",
        "List what was measured, with figures and verdicts",
        why.runs,
        "fleet",
        "experiment",
    ),
    _action(
        "draft",
        "d",
        "draft",
        "Look at the draft of the server",
        why.draft,
        "server",
    ),
    _action(
        "profiles",
        "P",
        "profiles",
        "List profiles, with what is wrong with them",
        why.profiles,
        "fleet",
    ),
    _action(
        "edit",
        "e",
        "edit",
        "Edit the profile in $EDITOR, then check it",
        why.edit,
        "profiles",
    ),
    _action(
        "copy",
        "y",
        "copy",
        "Copy the server's command line",
        why.with_server,
        "server",
        "log",
    ),
    _action(
        "retry",
        "r",
        "retry",
        "Try a host that is down again now",
        why.retry,
        "fleet",
        "host",
    ),
    _action(
        "connect",
        "a",
        "add host",
        "Connect to another host: of ~/.ssh/config, or by name",
        why.connect,
        "fleet",
        important=False,
    ),
    _action(
        "watch",
        "w",
        "watch",
        "Watch the servers of others on the host, so that they can be probed",
        why.watch,
        "host",
        important=False,
    ),
    _action(
        "processes",
        "i",
        "processes",
        "Show or hide the processes on the GPUs",
        why.on_fleet,
        "fleet",
        important=False,
    ),
    _action(
        "next_hit",
        "n",
        "next",
        "Go to the next hit in the log",
        why.on_log,
        "log",
    ),
    _action(
        "previous_hit",
        "N",
        "previous",
        "Go to the previous hit in the log",
        why.on_log,
        "log",
        important=False,
    ),
    _action(
        "only",
        "ampersand",
        "only",
        "Show only the lines of the log that contain a text",
        why.on_log,
        "log",
    ),
    _action(
        "jump",
        "J",
        "jump",
        "Go to a line of the log by its number, or to a time",
        why.on_log,
        "log",
    ),
    _action(
        "select",
        "v",
        "select",
        "Select lines of the log, from here to where you go; y copies them",
        why.on_log,
        "log",
        important=False,
    ),
    _action(
        "decisive",
        "c",
        "cause",
        "Go to the line of the log that decides",
        why.decisive,
        "log",
    ),
    _action(
        "sort",
        "greater_than_sign",
        "sort",
        "Sort servers by the next column",
        why.on_fleet,
        important=False,
    ),
    _action(
        "sort_back",
        "less_than_sign",
        "sort",
        "Sort servers by the previous column",
        why.on_fleet,
        important=False,
    ),
    _action(
        "invert",
        "I",
        "invert",
        "Turn the order of servers round",
        why.on_fleet,
        important=False,
    ),
    _action(
        "pause",
        "p",
        "pause",
        "Freeze the picture, or let it go on",
        why.always,
    ),
    _action(
        "previous_tab",
        "left_square_bracket",
        "tab",
        "Go to the previous tab or panel",
        why.tabs,
        important=False,
    ),
    _action(
        "next_tab",
        "right_square_bracket",
        "tab",
        "Go to the next tab or panel",
        why.tabs,
        important=False,
    ),
    _action(
        "theme",
        "T",
        "theme",
        "Use the next theme",
        why.always,
        important=False,
    ),
    _action(
        "back",
        "escape",
        "back",
        "Go back",
        why.back,
    ),
    _action(
        "palette",
        "colon ctrl+p",
        "commands",
        "Search all commands",
        why.always,
    ),
    _action(
        "help",
        "question_mark f1",
        "help",
        "Explain keys and signs",
        why.always,
    ),
    _action(
        "quit",
        "q ctrl+q",
        "quit",
        "Quit: servers keep running",
        why.always,
    ),
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
