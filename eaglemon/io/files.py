"""Writes files of this computer, whole or not at all."""

import os
import tempfile
from pathlib import Path

from eaglemon.errors import UsageError

MOST_OF_A_NAME = 100


def write_new(folder: Path, name: str, suffix: str, text: str) -> Path:
    """Write ``text`` as UTF-8 into a new file and return its path; raises ``UsageError``.

    It is ``NAME.SUFFIX`` in ``folder``, or ``NAME-2.SUFFIX`` and so on: never one that was there.
    """
    for number in range(1, MOST_OF_A_NAME + 1):
        path = folder / f"{name}{f'-{number}' if number > 1 else ''}{suffix}"
        try:
            with path.open("x", encoding="utf-8", errors="replace", newline="") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise UsageError(f"{path}: cannot be written: {reason}") from error
        return path
    raise UsageError(f"{folder / name}{suffix}: too many files of that name", hint="remove some")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 beside the place and move it there; raises ``UsageError``."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="") as file:
                file.write(text)
            # A temporary file is private; a report is as public as any new file.
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise UsageError(f"{path}: cannot be written: {reason}") from error
