"""Keeps secrets out of commands, records, recorded logs and exports."""

import functools
import re
from collections.abc import Collection, Mapping, Sequence

MASK = "***"
_SECRET_NAME = re.compile(r"(api[-_]?key|token$|secret|password|passwd|credential)", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_TOLD = re.compile(
    r"""
    (?P<name>(?<![\w-])[\w-]+)(?P<between>['"]?\s*[=:]\s*)
    (?P<value> '[^']*' | "[^"]*" | [\[(]\s*['"][^\])]*[\])] | (?<==)[^\s'",;)\]}]+ )
    """,
    re.VERBOSE,
)
"""A setting as logs tell them: ``api_key='k'``, ``"api_key": ["k1", "k2"]``, ``API_KEY=k``."""
_GIVEN = re.compile(r"(?P<name>(?<![\w-])--?[A-Za-z][\w-]*)(?P<between>\s+)(?P<value>[^\s-]\S*)")
_BEARER = re.compile(r"(\bBearer\s+)[\w.~+/=-]+", re.IGNORECASE)
_NOTHING = frozenset({"None", "null", "True", "False", "true", "false", "''", '""', MASK})
_KNOWN_MIN_LETTERS = 4
"""A shorter value stands in lines by chance, and taking it out would tell where it was."""


def is_secret(name: str) -> bool:
    """Tell whether a flag or variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name.lstrip("-")))


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with the values of secret variables masked."""
    return {name: MASK if is_secret(name) and value else value for name, value in env.items()}


def mask_argv(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with the values of secret flags and variables masked.

    ``--api-key X``, ``--api-key X Y`` (all up to the next flag), ``--api-key=X``, ``HF_TOKEN=X``.
    """
    masked: list[str] = []
    hiding = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if word.startswith("-"):
            hiding = is_secret(name) and not equals
            masked.append(f"{name}={MASK}" if equals and is_secret(name) else word)
        elif hiding:
            masked.append(MASK)
        elif equals and _VARIABLE.fullmatch(name) and is_secret(name):
            masked.append(f"{name}={MASK}")
        else:
            masked.append(word)
    return masked


@functools.lru_cache(maxsize=1024)
def mask_command(command: str) -> str:
    """Return a command line, its words joined with spaces as ``ps`` tells it, with masks."""
    return " ".join(mask_argv(command.split(" ")))


def mask_line(line: str, known: Collection[str] = ()) -> str:
    """Return a line of a log without secrets.

    Masked are settings with a secret's name, and the values that are ``known`` to be secret.
    """
    for value in sorted(known, key=len, reverse=True):
        if len(value) >= _KNOWN_MIN_LETTERS:
            line = line.replace(value, MASK)
    return _BEARER.sub(rf"\1{MASK}", _GIVEN.sub(_hide, _TOLD.sub(_hide, line)))


def secrets_of(values: Mapping[str, object]) -> set[str]:
    """Return the secrets among flags or variables, each of several on its own."""
    found: set[str] = set()
    for name, value in values.items():
        if is_secret(name):
            several = isinstance(value, (list, tuple))
            found |= set(map(str, value)) if several else {str(value)}  # type: ignore[call-overload]
    return found - {MASK, ""}


def _hide(match: re.Match[str]) -> str:
    if not is_secret(match["name"]) or match["value"] in _NOTHING:
        return match[0]
    return f"{match['name']}{match['between']}{MASK}"
