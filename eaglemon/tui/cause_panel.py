"""What the panel of a failed server says: why, what decides, what to change, what it left. Pure."""

from textual.content import Content

from eaglemon.core import units
from eaglemon.core.views import ServerView
from eaglemon.tui import panels
from eaglemon.tui.columns import joined, lines, wrapped

_NAME_WIDTH = 5


def failure(
    server: ServerView,
    width: int,
    *,
    read_only: bool = False,
    most: int = panels.DECISIVE_LINES,
) -> Content:
    """Return why a server failed, with the key that starts it otherwise; empty where it did not.

    The decisive line takes ``most`` lines at most.
    """
    if server.cause is None:
        return Content("")
    rows: list[Content | str] = [panels.cause(server.cause, width, most)]
    if server.state.ended:
        if not read_only:
            rows += _named("s", "bold $accent", _again(server.cause.changes), width)
        rows += _named("left", "$quiet", left_behind(server), width)
    return lines(rows)


def left_behind(server: ServerView) -> str:
    """Return what an ended server left on its GPUs, and which key ends it."""
    where = f" on {_gpus(server)}" if server.gpu_indexes else ""
    if not server.pids:
        return f"no process{where}"
    count = units.plural(len(server.pids), "process")
    shown = " ".join(str(pid) for pid in server.pids[:4])
    more = f" and {len(server.pids) - 4} more" if len(server.pids) > 4 else ""
    held = ""
    if server.memory_used_bytes is not None:
        held = f", {units.memory(server.memory_used_bytes)}{where}"
    return f"{count} (PID {shown}{more}){held}: K ends what is left"


def _gpus(server: ServerView) -> str:
    word = "GPU" if len(server.gpu_indexes) == 1 else "GPUs"
    return f"{word} {units.index_ranges(server.gpu_indexes)}"


def _again(changes: tuple[str, ...]) -> str:
    if changes:
        return f"opens the launch form with {' '.join(changes)}"
    return "opens the launch form as it was started, to be changed"


def _named(name: str, style: str, text: str, width: int) -> list[Content]:
    return [
        joined(Content.styled((name if number == 0 else "").ljust(_NAME_WIDTH), style), line)
        for number, line in enumerate(wrapped(text, width - _NAME_WIDTH))
    ]
