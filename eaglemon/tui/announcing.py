"""What is sent to a terminal when a long job ends: the bell, a notification (OSC 9), or nothing.

OSC 9 with a text is a notification in iTerm2, kitty, WezTerm, Ghostty, foot and ConEmu. Most other
terminals swallow it, but a few print what they do not know, so by default it is sent only to those
that say who they are. tmux and screen pass it on when it is wrapped (tmux with ``allow-passthrough
on``), and drop it otherwise. Pure.
"""

from collections.abc import Mapping

from eaglemon.tui.columns import plain

_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "ghostty"})
_SIGNS = (
    "KITTY_WINDOW_ID",
    "WEZTERM_PANE",
    "GHOSTTY_RESOURCES_DIR",
    "ITERM_SESSION_ID",
    "ConEmuPID",
)
"""Variables that such a terminal sets; they reach programs inside tmux as well."""
_TERMS = ("xterm-kitty", "xterm-ghostty", "foot", "wezterm")
_LONGEST = 200
"""A notification is one line; some multiplexers drop long sequences."""


def announcement(text: str, way: str, environment: Mapping[str, str]) -> str:
    """Return what to send for the end of a job; nothing that a terminal would print.

    ``way`` is one of ``eaglemon.core.terminal.ANNOUNCEMENTS``.
    """
    bell = "" if way in {"none", "osc9"} else "\a"
    wanted = way in {"osc9", "both"} or (way == "auto" and knows_osc9(environment))
    return bell + (_notification(text, environment) if wanted else "")


def knows_osc9(environment: Mapping[str, str]) -> bool:
    """Tell whether the terminal, or the one around a multiplexer, is known to show OSC 9."""
    term = environment.get("TERM", "")
    if term in {"", "dumb", "linux"}:
        return False
    program = {environment.get("TERM_PROGRAM"), environment.get("LC_TERMINAL")}
    return (
        bool(program & (_PROGRAMS | {"iTerm2"}))
        or any(environment.get(name) for name in _SIGNS)
        or term.startswith(_TERMS)
    )


def _notification(text: str, environment: Mapping[str, str]) -> str:
    # A number and a semicolon in front would mean something else (a progress bar).
    sequence = f"\x1b]9;{plain(text).lstrip('0123456789; ')[:_LONGEST]}\a"
    if environment.get("TMUX"):
        doubled = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    if environment.get("STY"):
        return f"\x1bP{sequence}\x1b\\"
    return sequence
