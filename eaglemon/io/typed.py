"""Turns plain values of a TOML file, and texts of ``--set``, into typed fields of a dataclass."""

import dataclasses
import re
import shlex
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from eaglemon.core.problems import Problem, did_you_mean
from eaglemon.core.profiles import FlagValue
from eaglemon.io.tomlfile import TomlFile

_PLAIN = re.compile(r"[+-]?\d|true$|false$|[\[{\"']")


def field_hints(kind: type) -> dict[str, object]:
    """Return the types of a dataclass's fields, by name."""
    return dict(typing.get_type_hints(kind))


def is_optional(hint: object) -> bool:
    """Tell whether ``None`` is a value of this type."""
    return type(None) in typing.get_args(hint)


def typed_fields(
    raw: Mapping[str, object],
    kind: type,
    *,
    file: TomlFile,
    path: Sequence[str],
    known: Sequence[str],
    tables: Mapping[str, str] | None = None,
) -> tuple[dict[str, object], list[Problem]]:
    """Return the fields of ``raw`` in their types, and a problem for each that is wrong.

    ``tables`` has the tables of keys that belong one level below.
    ``false`` takes back an optional value that a parent profile set: it becomes ``None``.
    """
    hints = field_hints(kind)
    values: dict[str, object] = {}
    problems: list[Problem] = []
    for key, value in raw.items():
        here = (*path, key)
        if key not in known:
            name = key.replace("-", "_")
            table = (tables or {}).get(name)
            below = f"write it as {name} in [{'.'.join((*path, table))}]" if table else ""
            hint = below or did_you_mean(name, known)
            problems.append(file.problem(here, "is not a known key", hint=hint))
            continue
        if value is False and is_optional(hints[key]):
            values[key] = None
            continue
        try:
            values[key] = msgspec.convert(value, typing.cast("type[object]", hints[key]))
        except msgspec.ValidationError:
            wrong = list(_wrong_parts(here, value, hints[key])) or [
                (here, f"must be {words_for(hints[key])}, not {_shown(value)}")
            ]
            problems += [file.problem(where, message) for where, message in wrong]
    return values, problems


def from_text(text: str, hint: object) -> object:
    """Return ``text`` of a command line as a value of type ``hint``; raises ``ValueError``."""
    if is_optional(hint):
        if text.lower() == "none":
            return None
        hint = _given(hint)
    if hint == tuple[int, ...]:
        return tuple(int(part) for part in text.replace(" ", "").strip("[]").split(",") if part)
    if hint == tuple[str, ...]:
        return tuple(shlex.split(text))
    if hint is str:
        return text
    if hint is bool:
        return {"true": True, "false": False}[text.lower()]
    return msgspec.convert(text, typing.cast("type[object]", hint), strict=False)


def flag_from_text(text: str, present: FlagValue | None) -> FlagValue:
    """Return a flag's new value: in the type of the present one, else as TOML, else as text."""
    if isinstance(present, str):
        return text
    if isinstance(present, tuple) and not text.startswith("["):
        return tuple(_plain_value(part.strip()) for part in text.split(","))
    if _PLAIN.match(text):
        try:
            value = tomllib.loads(f"value = {text}")["value"]
            return typing.cast("FlagValue", msgspec.convert(value, typing.cast("type", FlagValue)))
        except (tomllib.TOMLDecodeError, msgspec.ValidationError):
            return text
    return text


def words_for(hint: object) -> str:
    """Return what a type is called in a message."""
    hint = _given(hint)
    if dataclasses.is_dataclass(hint) or typing.get_origin(hint) in {dict, Mapping}:
        return "a table"
    return {
        str: "a text in quotes",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        tuple[int, ...]: "a list of whole numbers",
        tuple[str, ...]: "a list of texts",
    }.get(typing.cast("type", hint), _union_words(hint))


def _given(hint: object) -> object:
    """Return the type of a value that is not ``None``."""
    if not is_optional(hint):
        return hint
    (given,) = (part for part in typing.get_args(hint) if part is not type(None))
    return typing.cast("object", given)


def _wrong_parts(
    here: tuple[str, ...], value: object, hint: object
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the key and fault of each wrong part of a table or list that is meant to be one."""
    hint = _given(hint)
    kind = typing.get_args(hint)
    if isinstance(value, Mapping) and typing.get_origin(hint) in {dict, Mapping}:
        for key, item in value.items():
            if not _fits(item, kind[1]):
                yield (*here, key), f"must be {words_for(kind[1])}, not {_shown(item)}"
    elif isinstance(value, list) and typing.get_origin(hint) is tuple:
        for number, item in enumerate(value, start=1):
            if not _fits(item, kind[0]):
                yield here, f"must be {words_for(hint)}; item {number} is {_shown(item)}"


def _fits(value: object, hint: object) -> bool:
    try:
        msgspec.convert(value, typing.cast("type[object]", hint))
    except msgspec.ValidationError:
        return False
    return True


def _union_words(hint: object) -> str:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return "a text, number, true, false, list or table"
    return "another type"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return repr(value)


def _plain_value(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
