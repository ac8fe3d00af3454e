"""Texts of profiles and hosts: what no process, no file and no terminal takes."""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

_PROSE = frozenset({"description", "reference"})
"""Texts for people, which may have more than one line."""
_BREAKS = frozenset({"Cc", "Zl", "Zp"})


def text_problem(text: str, *, one_line: bool = True) -> str | None:
    """Return what is wrong with a text.

    Names and paths are of ``one_line``; shell lines, variables and flags may have more than one.
    """
    for character in text:
        if character == "\0" or (one_line and unicodedata.category(character) in _BREAKS):
            return f"must not have the control character U+{ord(character):04X} in it"
        if "\ud800" <= character <= "\udfff":
            return "must be UTF-8 text"
    return None


def text_problems(values: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the keys of a profile or host whose texts cannot be used, and why."""
    if is_dataclass(values):
        for field in fields(values):
            one_line = field.name not in _PROSE
            yield from _wrong((field.name,), getattr(values, field.name), one_line=one_line)


def _wrong(
    key: tuple[str, ...], value: object, *, one_line: bool
) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        problem = text_problem(value, one_line=one_line)
        if problem is not None:
            yield key, problem
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _wrong(key, item, one_line=False)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if key == ("env",) and (not name or "=" in name or text_problem(name)):
                yield (*key, name), "is no name of a variable"
            else:
                yield from _wrong((*key, name), item, one_line=False)
    else:
        for inner, problem in text_problems(value):
            yield (*key, *inner), problem
