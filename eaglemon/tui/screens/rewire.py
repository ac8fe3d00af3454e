"""The question before a draft is changed: the difference, and what is done afterwards."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import chop_cells
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from eaglemon.tui.columns import lines, plain, wrapped
from eaglemon.tui.screens.base import keep_buttons_in_sight

_DIALOG_WIDTH = 86


class AskFirst(ModalScreen[bool]):
    """Answers ``True`` when ``told`` may be done; Cancel has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,q", "answer(False)", show=False),
        Binding("left,right,h,l", "app.focus_next", show=False),
    ]

    def __init__(self, title: str, told: Sequence[str], verb: str) -> None:
        super().__init__()
        self._title = title
        self._told = tuple(told)
        self._verb = verb

    def compose(self) -> ComposeResult:
        """Lay out what would be done and the two buttons."""
        with Vertical(classes="dialog wide-dialog"):
            with VerticalScroll(id="told-body"):
                yield Static(id="told")
            with Horizontal(classes="buttons"):
                yield Button("Cancel  n", id="no", compact=True)
                yield Button(f"{self._verb}  y", id="yes", variant="warning", compact=True)

    def on_mount(self) -> None:
        """Cancel is the default."""
        self.query_one(".dialog").border_title = Content(plain(self._title))
        self.query_one("#no").focus()

    def on_resize(self) -> None:
        """Lines are wrapped for a width; a minus and a plus keep their colours."""
        width = min(_DIALOG_WIDTH, self.size.width) - 5
        rows = []
        for text in self._told:
            styles = {"-": "$state-failed", "+": "$state-ready"}
            style = styles.get(text[:1], "")
            # What differs keeps its indentation, by which it is read.
            parts = _cut(text, width) if style or text[:1] == " " else wrapped(text, width)
            rows += [Content.styled(line, style) for line in parts] or [Content("")]
        self.query_one("#told", Static).update(lines(rows))
        keep_buttons_in_sight(self, self.query_one("#told-body"))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 (called by key bindings)
        """Answer with a key."""
        self.dismiss(answer)


def _cut(text: str, width: int) -> list[str]:
    return chop_cells(plain(text), max(1, width))
