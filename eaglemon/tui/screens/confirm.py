"""The question before a stop: what will be ended, where, and what it will free."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from eaglemon.core import units
from eaglemon.core.views import ServerView, Snapshot
from eaglemon.tui.columns import lines, plain, wrapped

_DIALOG_WIDTH = 72
_NAME_WIDTH = 11


class ConfirmStop(ModalScreen[bool]):
    """Answers ``True`` when it may be done; ``verb`` is Stop, Kill or Restart.

    Cancel has the focus.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,q", "answer(False)", show=False),
        Binding("left,right,h,l", "app.focus_next", show=False),
    ]

    def __init__(self, server: ServerView, *, grace_s: float | None, verb: str) -> None:
        super().__init__()
        self._server = server
        self._grace_s = grace_s
        self._verb = verb

    def compose(self) -> ComposeResult:
        """Lay out the account and the two buttons."""
        with Vertical(classes="dialog"):
            yield Static(id="account")
            with Horizontal(classes="buttons"):
                yield Button("Cancel  n", id="no", compact=True)
                yield Button(f"{self._verb} it  y", id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        """Cancel is the default."""
        title = f"{self._verb} {self._server.name} on {self._server.host}?"
        self.query_one(".dialog").border_title = Content(plain(title))
        self.query_one("#no").focus()
        self.watch(self.app, "snapshot", self._follow, init=False)

    def on_resize(self) -> None:
        """Lines are wrapped for a width."""
        self._show()

    def _follow(self, snapshot: Snapshot) -> None:
        """Tell what a stop would do now: what was true when it was asked for grows old."""
        server = snapshot.server(self._server.id)
        if server is not None and server != self._server:
            self._server = server
            self._show()

    def _show(self) -> None:
        width = min(_DIALOG_WIDTH, self.size.width) - 4
        account = stop_account(self._server, self._grace_s, width, again=self._verb == "Restart")
        self.query_one("#account", Static).update(lines(account))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 (called by key bindings)
        """Answer with a key."""
        self.dismiss(answer)


def stop_account(
    server: ServerView, grace_s: float | None, width: int, *, again: bool = False
) -> list[Content]:
    """Return what a stop will do, in lines of at most ``width`` cells; ``again``: a restart.

    ``grace_s`` is the server's own where it is ``None``.
    """
    result = _facts("profile", server.profile, width)
    if server.state.ended and not server.pids:
        account = "It has ended, nothing to stop"
        account += f"; starts the same on port {server.port}." if again else "."
        return [*result, Content(""), *(Content(line) for line in wrapped(account, width))]
    result += _facts("processes", _processes(server), width)
    result += _facts("GPUs", _gpus(server), width)
    running = server.load.running if server.load else None
    if server.state.starting:
        running, requests = 0, "none: it does not answer yet"
    elif running is None:
        requests = "not known whether any is running"
    elif running == 0:
        requests = "none is running"
    else:
        verb = "is" if running == 1 else "are"
        requests = f"{units.plural(running, 'request')} {verb} running and will be cut off"
    style = "$state-warning" if running != 0 else ""
    result += _facts("requests", requests, width, style)
    grace_s = server.stop_grace_s if grace_s is None else grace_s
    grace = "the profile's grace" if grace_s is None else units.duration(grace_s)
    result.append(Content(""))
    account = f"TERM now, KILL after {grace}, then wait until the memory is back."
    if again:
        account = account.removesuffix(".") + f", then start the same on port {server.port}."
    return result + [Content(line) for line in wrapped(account, width)]


def _facts(name: str, text: str, width: int, style: str = "") -> list[Content]:
    return [
        Content.assemble(
            ((name if number == 0 else "").ljust(_NAME_WIDTH), "$quiet"), (line, style)
        )
        for number, line in enumerate(wrapped(text, width - _NAME_WIDTH))
    ]


def _gpus(server: ServerView) -> str:
    which = units.index_ranges(server.gpu_indexes) if server.gpu_indexes else "not known which"
    if server.memory_used_bytes is None:
        return f"{which}, memory not known"
    return f"{which}, {units.memory(server.memory_used_bytes)} to be freed"


def _processes(server: ServerView) -> str:
    if not server.pids:
        return "none known" if server.pid is None else f"PID {server.pid}"
    shown = " ".join(str(pid) for pid in server.pids[:12])
    more = f" and {len(server.pids) - 12} more" if len(server.pids) > 12 else ""
    return f"{len(server.pids)}: PID {shown}{more}"
