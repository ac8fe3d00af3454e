"""The dialog that asks which host to connect to, and whether to remember it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Button, Checkbox, Input, Label, Static

from eaglemon.tui.columns import lines, wrapped

_DIALOG_WIDTH = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was answered."""

    name: str
    """As ssh takes it: ``[user@]name[:port]``."""
    keep: bool
    """Write it to hosts.toml."""


class ConnectDialog(ModalScreen[Wanted | None]):
    """Answers with a host, ``None`` where none is wanted.

    ``offered`` are the names that ssh knows; ``name`` and ``keep`` are what it begins with.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    def __init__(self, offered: Sequence[str], *, name: str = "", keep: bool = False) -> None:
        super().__init__()
        self._keep_at_first = keep
        self._offered = tuple(offered)
        self._name_at_first = name

    def compose(self) -> ComposeResult:
        """Lay out the field, the names that ssh knows, and the buttons."""
        keep = self._keep_at_first
        with Vertical(classes="dialog"):
            with Horizontal(classes="field"):
                yield Label("host")
                yield Input(
                    self._name_at_first,
                    placeholder="[user@]name[:port], or a name of ~/.ssh/config",
                    suggester=SuggestFromList(self._offered, case_sensitive=False),
                    id="host-name",
                    compact=True,
                )
            yield Static(id="offered")
            yield Checkbox(_keep(on=keep), keep, id="keep", compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Cancel  esc", id="no", compact=True)
                yield Button("Connect  enter", id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one(".dialog").border_title = Content("Connect to another host")
        self.query_one("#host-name").focus()

    def on_resize(self) -> None:
        """Names are wrapped for a width."""
        width = min(_DIALOG_WIDTH, self.size.width) - 4
        told = "ssh knows: " + ", ".join(self._offered) if self._offered else ""
        told = told or "~/.ssh/config names no hosts; any name or address that ssh reaches will do"
        shown = [Content.styled(line, "$quiet") for line in wrapped(told, width, 3)]
        self.query_one("#offered", Static).update(lines(shown))

    def on_checkbox_changed(self, event: Checkbox.Changed) -> None:
        """Say in a word what its colour alone would tell."""
        event.checkbox.label = _keep(on=event.value)

    def on_input_submitted(self) -> None:
        """Enter connects."""
        self._answer()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        if event.button.id == "yes":
            self._answer()
        else:
            self.dismiss(None)

    def action_cancel(self) -> None:
        """Connect to nothing."""
        self.dismiss(None)

    def _answer(self) -> None:
        name = self.query_one("#host-name", Input).value.strip()
        if name:
            self.dismiss(Wanted(name=name, keep=self.query_one("#keep", Checkbox).value))


def _keep(*, on: bool) -> str:
    return f"keep it in hosts.toml: {'yes' if on else 'no'}"
