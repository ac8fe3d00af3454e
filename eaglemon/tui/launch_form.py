"""What a launch form changes of a profile, as the overrides that ``Eaglemon.plan`` takes. Pure."""

import json
import re
from collections.abc import Mapping, Sequence

from eaglemon.core.problems import Problem
from eaglemon.core.profiles import FlagValue, Profile
from eaglemon.errors import EaglemonError, UsageError

_FIELD = re.compile(r"(?:with )?--set (port|steps|topk|draft-tokens)=(\S+?)(?=[\s;,.]|$)")
_LINE = re.compile(r"--set ([\w.-]+)=(\S+)")


def in_the_form(text: str) -> str:
    """Return a message or hint that is worded for the command line in the words of the form."""
    text = _FIELD.sub(r"in the field \1 above", text)
    text = _LINE.sub(r"a line \1=\2 under flags", text)
    return text.replace("--set ", "").replace("use --set", "change it under flags")


def problems_of(where: str, error: EaglemonError) -> list[Problem]:
    """Return what stands against a launch: one problem for each line of a message."""
    messages = error.message.splitlines() or [""]
    last = len(messages) - 1
    return [
        Problem(where=where, message=message, hint=error.hint if number == last else "")
        for number, message in enumerate(messages)
    ]


def first_choice(profiles: Sequence[Profile]) -> str:
    """Return the name of the profile that the form begins with.

    EAGLE-3 servers are what this console is for, so it is the first of them for the engine of the
    first profile; baselines are one choice away.
    """
    engine = profiles[0].engine
    wanted = [
        profile
        for profile in profiles
        if profile.speculation is not None and profile.speculation.algorithm.upper() == "EAGLE3"
    ]
    return next((p for p in wanted if p.engine == engine), [*wanted, profiles[0]][0]).name


def flag_lines(profile: Profile) -> str:
    """Return the profile's flags as lines ``name=value``."""
    return "\n".join(f"{name}={value_text(value)}" for name, value in profile.flags.items())


def value_text(value: FlagValue) -> str:
    """Return a flag's value as it is typed after ``--set name=``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return str(value)


def field_values(profile: Profile) -> dict[str, str]:
    """Return the form's single fields by override key; an empty text is "not set"."""
    speculation = profile.speculation
    figures = {
        "speculation.steps": speculation.steps if speculation else None,
        "speculation.topk": speculation.topk if speculation else None,
        "speculation.draft_tokens": speculation.draft_tokens if speculation else None,
    }
    texts = {key: "" if value is None else str(value) for key, value in figures.items()}
    return {"port": str(profile.port), **texts}


def parse_flag_lines(text: str) -> dict[str, str]:
    """Return flags by name from lines ``name=value``; a bare name means ``true``.

    Blank lines and lines that start with ``#`` say nothing. Raises ``UsageError`` naming the line.
    """
    flags: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name = name.strip().removeprefix("--")
        if not name or " " in name:
            raise UsageError(f"flags, line {number}: {line!r} is not name=value")
        if name in flags:
            raise UsageError(f"flags, line {number}: {name} is given twice")
        flags[name] = value.strip() if equals else "true"
    return flags


def overrides(profile: Profile, values: Mapping[str, str], flags: str) -> dict[str, str]:
    """Return what the form changes; a flag whose line was removed is ``false``, left out.

    Raises ``UsageError`` for a line that is not ``name=value`` and for an emptied field.
    """
    changed: dict[str, str] = {}
    for key, before in field_values(profile).items():
        now = values[key].strip()
        if now == before:
            continue
        if not now:
            raise UsageError(f"{key} is empty", hint=f"the profile has {before}")
        changed[key] = now
    typed = parse_flag_lines(flags)
    before_flags = {name: value_text(value) for name, value in profile.flags.items()}
    changed |= {name: value for name, value in typed.items() if before_flags.get(name) != value}
    return changed | {name: "false" for name in before_flags if name not in typed}
