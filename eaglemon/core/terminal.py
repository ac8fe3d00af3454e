"""Text for a terminal: what came from outside must not move its cursor or rename its window."""

import re

ANNOUNCEMENTS = ("auto", "bell", "osc9", "both", "none")
"""How a terminal is told that a long job ended: ``auto`` is the bell, and a notification (OSC 9)
where the terminal is known to show it."""

# All but tabs and newlines; line and paragraph separators and changes of direction too.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def harmless(text: str) -> str:
    """Return ``text`` with each control character written out, such as ``\\x1b``."""
    return _CONTROLS.sub(lambda match: _named(match.group()), text)


def _named(character: str) -> str:
    return repr(character)[1:-1]
