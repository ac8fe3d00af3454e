"""Writes stdout, and is the only module that does: data for a person, or one JSON document."""

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Self

from eaglemon.core.redact import MASK, is_secret, mask_argv, mask_env
from eaglemon.core.terminal import harmless
from eaglemon.errors import EaglemonError

SCHEMA_VERSION = 1
_IN_MEMORY_LETTERS = 4 << 20
# JSON may have them as they are, but they move the cursor of a terminal all the same.
_LATE_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029]")


class OutputClosedError(Exception):
    """The reader of stdout has gone (``eaglemon logs X | head``): nothing is left to do."""


class OutputFailedError(EaglemonError):
    """Stdout takes nothing: its disk is full, or it was closed by whoever called."""


def open_closed_streams() -> None:
    """Give standard streams that are closed (``>&-``) a file, lest a socket takes their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        # What is written to stdout fails then, and is told; stderr has nobody to tell.
        flags = os.O_WRONLY if name == "stderr" else os.O_RDONLY
        if os.open(os.devnull, flags) == number:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of text and flush them; control characters in them are shown, not obeyed."""
    _write("".join(f"{harmless(line)}\n" for line in lines))


def write_styled(lines: Iterable[str]) -> None:
    """Write lines that their maker has coloured, and made ``harmless`` before."""
    _write("".join(f"{line}\n" for line in lines))


def redraw(changes: str) -> None:
    """Write what of a picture has changed (see ``line_picture``)."""
    _write(changes)


def write_document(command: str, content: Mapping[str, object]) -> None:
    """Write the one JSON document of a command."""
    _write(_json(_document(command, content), indent=2) + "\n")


def write_json_line(command: str, content: Mapping[str, object]) -> None:
    """Write one document on a line of its own: of an endless list, or of an error."""
    _write(_json(_document(command, content)) + "\n")


class LongDocument:
    """The one JSON document of a command with a list that may not fit into memory.

    It is kept in a temporary file until it is whole: a command that fails writes none.
    """

    def __init__(self, command: str, content: Mapping[str, object], name: str) -> None:
        """``content`` comes before the list, which is called ``name``."""
        import tempfile  # noqa: PLC0415 -- other commands do without

        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 -- closed at the end of "with"
            _IN_MEMORY_LETTERS, "w+", encoding="utf-8", errors="surrogatepass"
        )
        self._is_empty = True
        begin = _json(_document(command, content), indent=2).removesuffix("\n}")
        self._keep(f"{begin},\n  {_json(name)}: [")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, items: Iterable[str]) -> None:
        """Append to the list; raises ``OutputFailedError`` where there is no room to keep it."""
        text = ",".join(f"\n    {_json(item)}" for item in items)
        if text:
            self._keep(text if self._is_empty else f",{text}")
            self._is_empty = False

    def write(self, content: Mapping[str, object]) -> None:
        """Write all of it to stdout; ``content`` comes after the list."""
        end = _json(dict(content), indent=2).removeprefix("{")
        close = "]" if self._is_empty else "\n  ]"
        self._keep(f"{close},{end}\n")
        self._file.seek(0)
        while part := self._file.read(_IN_MEMORY_LETTERS):
            _write(part)

    def _keep(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError as error:
            raise OutputFailedError(
                f"no room to put the document together: {error.strerror}",
                hint="name a larger folder in TMPDIR, or leave out --json",
            ) from error


def plain(value: object) -> object:
    """Return a value as JSON has it: dataclasses as objects, secrets masked, no NaN."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _field(f.name, getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _field(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else str(value)


def _field(name: str, value: object) -> object:
    if isinstance(value, str):
        return MASK if value and is_secret(name) else str(value)
    if isinstance(value, (list, tuple)) and is_secret(name):
        return [MASK if isinstance(item, str) else plain(item) for item in value]
    if name in {"argv", "command"} and isinstance(value, tuple):
        return mask_argv([str(word) for word in value])
    if name == "env" and isinstance(value, Mapping):
        return mask_env({str(key): str(item) for key, item in value.items()})
    return plain(value)


def _document(command: str, content: Mapping[str, object]) -> dict[str, object]:
    body = {key: _field(key, value) for key, value in content.items()}
    return {"schema_version": SCHEMA_VERSION, "command": command, **body}


def _json(document: object, indent: int | None = None) -> str:
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return _LATE_CONTROLS.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _write(text: str) -> None:
    # Lone surrogates of undecodable bytes and terminals without UTF-8 must not end a command.
    encoding = sys.stdout.encoding or "utf-8"
    safe = text.encode(encoding, errors="replace").decode(encoding)
    try:
        sys.stdout.write(safe)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes stdout once more at its end, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise OutputClosedError from error
        raise OutputFailedError(f"cannot write to stdout: {error.strerror}") from error
