"""Writes stderr, and is the only module that does; tracebacks go to the log file."""

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from eaglemon.core.problems import Problem
from eaglemon.core.terminal import harmless
from eaglemon.io.paths import log_file

_LOG_LIMIT_BYTES = 4 * 1024 * 1024
_logger = logging.getLogger("eaglemon")


def talk(text: str) -> None:
    """Write one line of talk; control characters in it are shown, not obeyed."""
    encoding = sys.stderr.encoding or "utf-8"
    line = harmless(text).encode(encoding, errors="replace").decode(encoding) + "\n"
    # Where nothing can be said, the work goes on all the same.
    with suppress(OSError):
        sys.stderr.write(line)
        sys.stderr.flush()


def warn(text: str) -> None:
    """Write one line about something that is wrong but does not stop the command."""
    talk(f"eaglemon: warning: {text}")


def fail(text: str) -> None:
    """Write why the command failed: one line, or one for each of several problems."""
    for line in text.split("\n"):
        talk(f"eaglemon: {line}")


def list_problems(problems: Iterable[Problem]) -> None:
    """Write a line for each problem."""
    for problem in problems:
        talk(f"eaglemon: {problem.severity}: {problem}")


def record_traceback(error: BaseException) -> str:
    """Write the traceback to the log file and return where it lies, in words."""
    path = log_file()
    handler = _open_log(path)
    if handler is None:
        return f"and its traceback could not be written to {path}"
    record = _logger.makeRecord(
        _logger.name,
        logging.ERROR,
        __name__,
        0,
        "unexpected error",
        (),
        (type(error), error, error.__traceback__),
    )
    handler.emit(record)
    handler.close()
    return f"the traceback is in {path}"


@contextmanager
def library_log() -> Iterator[None]:
    """Send what libraries log to the log file, not to the terminal, while the block runs."""
    handler = _open_log(log_file()) or logging.NullHandler()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the errors of a group and of the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def _open_log(path: Path) -> logging.Handler | None:
    """Open the log; ``None`` where the disk or the rights do not allow it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.old"))
        handler = logging.FileHandler(path, encoding="utf-8", errors="replace")
    except OSError:
        return None
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler
