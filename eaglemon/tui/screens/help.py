"""Help: every action of the table with its keys, how to move, and what the signs mean."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from eaglemon.tui.actions import ACTIONS, Scene, shown_key
from eaglemon.tui.columns import joined, lines, wrapped
from eaglemon.tui.looks import PHASE_LOOKS, SERVER_LOOKS, Look

MOVING = (
    ("↑ ↓ j k", "move in the focused list or log"),
    ("g G", "to the top, to the end (a log follows again)"),
    ("pgup pgdn", "a page up or down"),
    ("tab", "next panel; [ and ] or 1 to 4 choose a tab"),
    ("enter", "open a server or a host; space folds a host"),
    ("ctrl+z", "give the terminal to the shell; fg comes back"),
    ("esc", "back, close a dialog, clear the filter"),
)
_KEY_WIDTH = 11
_SIGN_WIDTH = 13
_DIALOG_WIDTH = 86
_AROUND_TEXT = 6
"""Columns of the border, the scrollbar and what keeps the text from them."""
_FIGURES = (
    ("accept", "accept length: tokens per verify step, the bonus token included"),
    ("memory", "as the driver reports it in use, without its reserved part"),
    ("-", "not known, which is never the same as 0"),
)


class HelpScreen(ModalScreen[None]):
    """Closes with esc, q or ?."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss(None)", show=False),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
        Binding("g,home", "edge(False)", show=False),
        Binding("G,end", "edge(True)", show=False),
    ]

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def compose(self) -> ComposeResult:
        """Lay out one scrolling column."""
        with VerticalScroll(classes="dialog wide-dialog", id="help-text"):
            yield Static(id="help-lines")

    def on_mount(self) -> None:
        """Name the dialog."""
        self.query_one("#help-text").border_title = Content("Help ─ esc closes")

    def on_resize(self) -> None:
        """Lines are wrapped for a width."""
        width = min(_DIALOG_WIDTH, self.size.width) - _AROUND_TEXT
        self.query_one("#help-lines", Static).update(lines(help_lines(self._scene, width)))

    def action_scroll(self, step: int) -> None:
        """Scroll the text."""
        self.query_one("#help-text").scroll_relative(y=step, animate=False)

    def action_edge(self, end: bool) -> None:  # noqa: FBT001 (called by key bindings)
        """Go to the end or the top of the text."""
        text = self.query_one("#help-text")
        text.scroll_to(y=text.max_scroll_y if end else 0, animate=False)


def help_lines(scene: Scene, width: int) -> list[Content]:
    """Return the help text; actions that cannot be carried out now say why."""
    result = [_heading("Actions")]
    for action in ACTIONS:
        why_not = action.why_not(scene)
        style = "bold $accent" if why_not is None else "$quiet"
        result += _entry(shown_key(action), style, action.title, width)
        if why_not is not None:
            result += _entry("", "", f"now: {why_not}", width, text_style="$quiet")
    result += [Content(""), _heading("Moving")]
    for keys, text in MOVING:
        result += _entry(keys, "bold $accent", text, width)
    result += [Content(""), _heading("States of a server")]
    result += _signs(list(SERVER_LOOKS.values()), width)
    result += [Content(""), _heading("Phases of a start")]
    result += _signs(list(PHASE_LOOKS.values()), width)
    result += [Content(""), _heading("Figures")]
    for name, text in _FIGURES:
        result += _entry(name, "bold", text, width)
    return result


def _entry(name: str, style: str, text: str, width: int, *, text_style: str = "") -> list[Content]:
    return [
        Content.assemble(
            ((name if number == 0 else "").ljust(_KEY_WIDTH), style), (line, text_style)
        )
        for number, line in enumerate(wrapped(text, width - _KEY_WIDTH))
    ]


def _heading(text: str) -> Content:
    return Content.styled(text, "bold")


def _signs(looks: list[Look], width: int) -> list[Content]:
    cells = [look.content(width=_SIGN_WIDTH) for look in looks]
    each = max(1, width // _SIGN_WIDTH)
    return [joined(*cells[start : start + each]) for start in range(0, len(cells), each)]
