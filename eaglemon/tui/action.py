"""What an action of the console is; the table of them is ``actions.py``."""

from dataclasses import dataclass

from eaglemon.tui.scene import WhyNot


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


def shown_key(one: Action) -> str:
    """Return the key as people write it."""
    return _NAMES.get(one.keys[0], one.keys[0])


def action(
    id: str,  # noqa: A002 (the name of the field)
    keys: str,
    label: str,
    title: str,
    why_not: WhyNot,
    *screens: str,
    important: bool = True,
) -> Action:
    """Return an action; ``keys`` are separated by spaces."""
    return Action(
        id=id,
        keys=tuple(keys.split()),
        label=label,
        title=title,
        why_not=why_not,
        important=important,
        screens=screens,
    )
