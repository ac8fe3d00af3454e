"""A claim on a name among the consoles of this computer; it ends with its process at the latest."""

import contextlib
import errno
import importlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from eaglemon.errors import UsageError

ALONE_S = 10.0
"""The longest wait for another console that writes a file."""
_TRIES = 5
_PAUSE_S = 0.005
"""``held`` locks the file too, for much less than this."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""Of a file system without locks, such as some network ones."""


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
        except OSError:
            return False  # Nobody can tell.
        return False


@contextlib.contextmanager
def claim(folder: Path, name: str) -> Iterator[None]:
    """Hold the claim while the block runs; raises ``UsageError`` when another process holds it.

    Where the system (Windows) or the file system has no ``flock`` nothing is claimed.
    """
    try:
        importlib.import_module("fcntl")
    except ImportError:
        yield
        return
    path = folder / f"{name}.lock"
    file = _locked(path, _TRIES)
    if file is None:
        raise UsageError(f"{name} is under way in another console", hint="cancel it there first")
    with _let_go(file, path):
        yield


@contextlib.contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Keep other consoles from writing ``path`` while the block runs, waiting for them; blocks.

    Makes its folder. Raises ``UsageError`` where that cannot be, or after ``ALONE_S``.
    """
    try:
        importlib.import_module("fcntl")
    except ImportError:
        yield
        return
    lock = path.with_name(f"{path.name}.lock")
    file = _locked(lock, round(ALONE_S / _PAUSE_S))
    if file is None:
        raise UsageError(f"{path}: another console is writing it", hint="try again")
    with _let_go(file, lock):
        yield


@contextlib.contextmanager
def _let_go(file: TextIO, path: Path) -> Iterator[None]:
    with file:
        try:
            yield
        finally:
            # What stays behind is claimed by nobody.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _locked(path: Path, tries: int) -> TextIO | None:
    """Return the open file at ``path``, locked where that can be; ``None`` where it is held."""
    fcntl = importlib.import_module("fcntl")
    for _ in range(tries):
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {_reason(error)}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have removed it since it was opened: a lock on that keeps nobody
            # out.
            if _is_at(path, file):
                return file
            file.close()
        except BlockingIOError:
            file.close()
            time.sleep(_PAUSE_S)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return file
            file.close()
            raise UsageError(f"{path}: cannot be locked: {_reason(error)}") from error
    return None


def _is_at(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
