"""Writes files of this computer, whole or not at all."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from eaglemon.errors import UsageError

MOST_OF_A_NAME = 100


def write_new(folder: Path, name: str, suffix: str, text: str) -> Path:
    """Write ``text`` as UTF-8 into a new file and return its path; raises ``UsageError``.

    It is ``NAME.SUFFIX`` in ``folder``, or ``NAME-2.SUFFIX`` and so on: never one that was there.
    """
    path = folder / f"{name}{suffix}"
    with _told_of(path), _written(path, _encoded(text)) as fresh:
        for number in range(1, MOST_OF_A_NAME + 1):
            path = folder / f"{name}{f'-{number}' if number > 1 else ''}{suffix}"
            # The name is taken first: two consoles may be at this.
            with contextlib.suppress(FileExistsError):
                path.open("x").close()
                fresh.replace(path)
                return path
    raise UsageError(f"{folder / name}{suffix}: too many files of that name", hint="remove some")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, as ``write_bytes`` does."""
    write_bytes(path, _encoded(text))


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` beside the place and move it there; raises ``UsageError``.

    A file that was there keeps its mode, and a link stays one: what it leads to is written.
    """
    place = Path(os.path.realpath(path))
    with _told_of(path), _written(place, data) as fresh:
        fresh.replace(place)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


@contextlib.contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise UsageError(f"{path}: cannot be written: {reason}") from error


@contextlib.contextmanager
def _written(place: Path, data: bytes) -> Iterator[Path]:
    """Give a file beside ``place`` with ``data`` and the mode that belongs there."""
    fresh = place.parent / f".{place.name}.{secrets.token_hex(8)}"
    mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else None
    # What is kept private is so from the beginning; a new file is as public as the mask says.
    opener = partial(os.open, mode=0o666 if mode is None else 0o600)
    try:
        with open(fresh, "xb", opener=opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            fresh.chmod(mode)
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)
