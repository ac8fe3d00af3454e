"""What makes a simulated engine process look and die like a real one.

Titles are set as setproctitle does, by writing over the process's own argument area; without
``/proc`` (macOS) they are left alone.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Never

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def start_ticks(pid: int) -> int | None:
    """Return field 22 of ``/proc/<pid>/stat``; ``None`` where there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def is_alive(pid: int, ticks: int | None) -> bool:
    """Tell whether the process runs (not as a zombie) and is the one with these start ticks."""
    fields = _stat(pid)
    if fields is not None:
        return fields[0] not in "ZX" and (ticks is None or int(fields[19]) == ticks)
    if Path("/proc/self").exists():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def set_title(argv: list[str], *, name: str, blank_environment: bool = False) -> None:
    """Show ``argv`` as this process's command line and ``name`` (15 bytes) as its name.

    ``blank_environment`` empties ``/proc/<pid>/environ`` too, as setproctitle does.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    fields = _stat(os.getpid())
    if fields is None or len(fields) < 49:
        return
    begin, end, env_begin, env_end = (int(field) for field in fields[45:49])
    size = end - begin
    if size <= 0:
        return
    if blank_environment:
        # libc's view must go first: its pointers lead into the memory that is wiped.
        libc.clearenv()
        ctypes.memset(env_begin, 0, env_end - env_begin)
    title = "\0".join(argv).encode()[: size - 1]
    ctypes.memset(begin, 0, size)
    ctypes.memmove(begin, title, len(title))


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies, as SGLang's children do."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def fork_child(body: Callable[[], int]) -> int:
    """Fork, run ``body`` in the child and end it with the returned status; return the child's pid.

    Only for processes with one thread and no running event loop.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        status = body()
    except KeyboardInterrupt:
        status = 130
    finally:
        sys.stderr.flush()
        os._exit(status)


def kill_tree(children: list[int]) -> Never:
    """SIGKILL the children and this process, as ``kill_process_tree`` does: exit by signal 9."""
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("survived SIGKILL")


def _stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/<pid>/stat`` from the state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return text.rsplit(")", 1)[1].split()
