"""Help: every action of the table with its keys, how to move, and what the signs mean."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from eaglemon.tui.actions import ACTIONS, Scene, shown_key
from eaglemon.tui.columns import joined, lines
from eaglemon.tui.looks import PHASE_LOOKS, SERVER_LOOKS, Look

_MOVING = (
    ("↑ ↓ j k", "move in the focused list or log"),
    ("g G", "to the top, to the end (a log follows again)"),
    ("pgup pgdn", "a page up or down"),
    ("tab", "next panel; [ and ] or 1 to 4 choose a tab"),
    ("enter", "open a server; fold a host; processes of a GPU"),
    ("esc", "back, close a dialog, clear the filter"),
)
_KEY_WIDTH = 11
_SIGN_WIDTH = 13
_SIGNS_A_LINE = 4


class HelpScreen(ModalScreen[None]):
    """Closes with esc, q or ?."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss(None)", show=False),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
    ]

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def compose(self) -> ComposeResult:
        """Lay out one scrolling column."""
        with VerticalScroll(classes="dialog wide-dialog", id="help-text"):
            yield Static(lines(help_lines(self._scene)))

    def on_mount(self) -> None:
        """Name the dialog."""
        self.query_one("#help-text").border_title = Content("Help ─ esc closes")

    def action_scroll(self, step: int) -> None:
        """Scroll the text."""
        self.query_one("#help-text").scroll_relative(y=step, animate=False)


def help_lines(scene: Scene) -> list[Content]:
    """Return the help text; actions that cannot be carried out now say why."""
    result = [_heading("Actions")]
    for action in ACTIONS:
        why_not = action.why_not(scene)
        key = shown_key(action).ljust(_KEY_WIDTH)
        result.append(
            Content.assemble(
                (key, "bold $accent" if why_not is None else "$quiet"),
                (action.title, "" if why_not is None else "$quiet"),
            )
        )
        if why_not is not None:
            result.append(Content.styled(" " * _KEY_WIDTH + f"now: {why_not}", "$quiet"))
    result += [Content(""), _heading("Moving")]
    result += [
        Content.assemble((keys.ljust(_KEY_WIDTH), "bold $accent"), text) for keys, text in _MOVING
    ]
    result += [Content(""), _heading("States of a server")]
    result += _signs(list(SERVER_LOOKS.values()))
    result += [Content(""), _heading("Phases of a start")]
    result += _signs(list(PHASE_LOOKS.values()))
    result += [Content(""), _heading("Figures")]
    result.append(Content("accept length: tokens per verify step, the bonus token included"))
    result.append(Content("memory: as the driver reports it in use, without its reserved part"))
    result.append(Content("-: not known, which is never the same as 0"))
    return result


def _heading(text: str) -> Content:
    return Content.styled(text, "bold")


def _signs(looks: list[Look]) -> list[Content]:
    cells = [look.content(width=_SIGN_WIDTH) for look in looks]
    return [
        joined(*cells[start : start + _SIGNS_A_LINE])
        for start in range(0, len(cells), _SIGNS_A_LINE)
    ]
