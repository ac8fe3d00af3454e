"""The journal of a draft's repairs, ``.eaglemon-repairs.json`` in its folder.

A draft's folder may come from anywhere, its journal too: only plain names are taken from it, and
only those that a repair writes.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from eaglemon.draft.checkpoint import read_json
from eaglemon.errors import ConfigError

JOURNAL = ".eaglemon-repairs.json"
_PLAIN = re.compile(r"[^/\\\0]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """One file that a repair has replaced."""

    name: str
    backup: str
    """Name of the old file, beside it."""
    sha256: str | None = None
    """Of what was written; ``None`` in journals of releases that did not note it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One repair."""

    number: int
    title: str
    files: tuple[Replaced, ...]


def read_journal(folder: Path) -> list[Entry]:
    """Return the repairs of a draft, newest last; raises ``ConfigError`` for a damaged journal."""
    path = folder / JOURNAL
    if not path.is_file():
        return []
    told = read_json(path).get("repairs")
    if not isinstance(told, list):
        raise _damaged(path, "it holds no list of repairs")
    return [_entry(path, one) for one in told]


def write_journal(folder: Path, entries: Sequence[Entry]) -> None:
    """Replace the journal in one step, or remove it where nothing is left; raises ``OSError``."""
    path = folder / JOURNAL
    if not entries:
        path.unlink(missing_ok=True)
        return
    fresh = folder / f"{JOURNAL}.new"
    content = json.dumps({"repairs": [asdict(entry) for entry in entries]}, indent=2)
    fresh.write_text(content + "\n", encoding="utf-8")
    fresh.replace(path)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, some megabytes at a time; raises ``OSError``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _entry(path: Path, told: object) -> Entry:
    match told:
        case {"number": int(number), "title": str(title), "files": list(files)}:
            return Entry(
                number=number, title=title, files=tuple(_replaced(path, file) for file in files)
            )
    raise _damaged(path, f"{told!r:.60} is no repair")


def _replaced(path: Path, told: object) -> Replaced:
    match told:
        case {"name": str(name), "backup": str(backup), **others}:
            plain = _PLAIN.fullmatch(name) is not None and name not in {".", ".."}
            if not plain or re.fullmatch(re.escape(name) + r"\.before-\d+", backup) is None:
                raise _damaged(path, f"{name!r} and {backup!r} are no names that a repair writes")
            digest = others.get("sha256")
            return Replaced(
                name=name, backup=backup, sha256=digest if isinstance(digest, str) else None
            )
    raise _damaged(path, f"{told!r:.60} names no file and its backup")


def _damaged(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"{path}: damaged: {reason}",
        hint="nothing was changed; remove it, and rename the files X.before-N yourself",
    )
