"""Reads TOML files so that what is wrong in them can be told by file, line and key."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path

from eaglemon.core.problems import Problem

_ASSIGNMENT = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'|\s*\.\s*)+?)\s*=")
_SYNTAX_PLACE = re.compile(r"^(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A TOML file that could be read: its values, and its text to find lines in."""

    label: str
    """How messages name it: a path, or ``packaged profiles/NAME.toml``."""
    values: Mapping[str, object] = field(default_factory=dict)
    text: str = ""
    folder: Path | None = None
    """Where relative paths in it start; ``None`` for packaged files."""

    def problem(self, path: Sequence[str], message: str, *, hint: str = "") -> Problem:
        """Return a problem of the key at ``path``, with the line it stands on."""
        line = line_of(self.text, path)
        place = f"{self.label}:{line}" if line is not None else self.label
        key = ".".join(path)
        return Problem(where=f"{place}: {key}" if key else place, message=message, hint=hint)


def read_toml(source: Path | Traversable, *, label: str | None = None) -> TomlFile | Problem:
    """Read ``source``; the problem says what is wrong with it as a file or as TOML."""
    name = label if label is not None else str(source)
    try:
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return Problem(where=name, message=f"is not UTF-8 text ({error.reason})")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        return Problem(where=name, message=f"cannot be read: {reason}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return _syntax_problem(name, text, str(error))
    folder = source.parent if isinstance(source, Path) and label is None else None
    return TomlFile(label=name, values=values, text=text, folder=folder)


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the 1-based line that sets the key at ``path``, or the nearest table above it."""
    wanted = tuple(path)
    table: tuple[str, ...] = ()
    best, best_depth = None, 0
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            header = _key_path(stripped.partition("#")[0].strip().strip("[]"))
            if header is None:
                continue
            table = header
            found = table
        else:
            match = _ASSIGNMENT.match(line)
            key = _key_path(match[1]) if match else None
            if key is None:
                continue
            found = (*table, *key)
        depth = _shared_depth(found, wanted)
        if depth > best_depth:
            best, best_depth = number, depth
    return best


def _shared_depth(left: Sequence[str], right: Sequence[str]) -> int:
    for depth, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return depth
    return min(len(left), len(right))


def _key_path(text: str) -> tuple[str, ...] | None:
    try:
        value: object = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return None
    path: list[str] = []
    while isinstance(value, dict):
        key, value = next(iter(value.items()))
        path.append(key)
    return tuple(path)


def _syntax_problem(name: str, text: str, message: str) -> Problem:
    match = _SYNTAX_PLACE.match(message)
    if match:
        line = int(match["line"])
        what = match["what"]
    else:
        line = len(text.splitlines())
        what = message.partition(" (at ")[0]
    lines = text.splitlines()
    shown = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Problem(
        where=f"{name}:{line}",
        message=f"is not valid TOML: {what[:1].lower()}{what[1:]}",
        hint=f"look at: {shown[:80]}" if shown else "",
    )
