"""A claim on a name among the consoles of this computer; it ends with its process at the latest."""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path

from eaglemon.errors import UsageError


def held(folder: Path, name: str) -> bool:
    """Tell whether a process holds the claim, this one or another."""
    try:
        fcntl = importlib.import_module("fcntl")
        file = (folder / f"{name}.lock").open("rb")
    except (ImportError, OSError):
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@contextlib.contextmanager
def claim(folder: Path, name: str) -> Iterator[None]:
    """Hold the claim while the block runs; raises ``UsageError`` when another process holds it.

    Where the system has no ``flock`` (Windows) nothing is claimed.
    """
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:
        yield
        return
    path = folder / f"{name}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise UsageError(f"{path}: cannot be written: {reason}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{name} is under way in another console", hint="cancel it there first"
            ) from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
