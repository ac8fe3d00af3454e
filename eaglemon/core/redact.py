"""Keeps secrets out of commands, records, logs and exports."""

import re
from collections.abc import Mapping, Sequence

MASK = "***"
_SECRET_NAME = re.compile(r"(api[-_]?key|token$|secret|password|passwd|credential)", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Tell whether a flag or variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name.lstrip("-")))


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with the values of secret variables masked."""
    return {name: MASK if is_secret(name) and value else value for name, value in env.items()}


def mask_argv(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with the values of secret flags masked (``--api-key X``, ``--api-key=X``)."""
    masked: list[str] = []
    hide_next = False
    for word in argv:
        if hide_next:
            masked.append(MASK)
            hide_next = False
            continue
        name, equals, _ = word.partition("=")
        if word.startswith("-") and is_secret(name):
            masked.append(f"{name}={MASK}" if equals else word)
            hide_next = not equals
        else:
            masked.append(word)
    return masked
