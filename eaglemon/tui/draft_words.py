"""Advice about a draft in the console's words: keys in place of commands and options. Pure."""

import re

_SET_LAYERS = re.compile(r"eaglemon draft set-layers .*?(?: \(writes (.*)\))?")
_INSTEAD = (
    ("run 'eaglemon draft check' to find", "press D to find"),
    ("write the ids with 'eaglemon draft set-layers'", "press D to find the ids, then f"),
    ("diagnose with --capture, to find", "press D to find"),
    ("with --hidden or --capture", "with D"),
    ("are served (--capture)", "are served (D)"),
    ("probe the server,", "probe the server (t),"),
    ("name a Python of the host with --python:", "the profile's python must be one of the host:"),
    ("or name a Python that has it with --python", "or name one that has it in the profile"),
)


def in_keys(text: str) -> str:
    """Return advice of the draft doctor, as somebody who sits before the console would take it."""
    written = _SET_LAYERS.fullmatch(text)
    if written is not None:
        what = written.group(1) or "these layers"
        return f"press f: it writes {what}, restarts the server and probes it"
    for command, key in _INSTEAD:
        text = text.replace(command, key)
    return text
