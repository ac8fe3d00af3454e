"""What a connection has to ask a person: whether a host key is right, or a passphrase."""

import asyncio
from typing import ClassVar
from weakref import WeakKeyDictionary

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from eaglemon.core.hosts import HostQuestion
from eaglemon.tui.columns import plain


class HostQuestionScreen(ModalScreen[str | None]):
    """Answers with ``yes`` or the passphrase, ``None`` for a refusal, which is the default."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "refuse", show=False),
        Binding("y", "accept", show=False),
        Binding("n", "refuse", show=False),
    ]

    def __init__(self, question: HostQuestion) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Lay out the question, its detail, and where to answer."""
        with Vertical(classes="dialog"):
            yield Static(Content(plain(self._question.text)))
            yield Static(Content(plain(self._question.detail)))
            if self._question.is_secret:
                yield Input(password=True, id="answer", compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="no", compact=True)
                word = "Unlock" if self._question.is_secret else "It is the key  y"
                yield Button(word, id="yes", variant="warning", compact=True)

    def on_mount(self) -> None:
        """A passphrase is typed at once; a key has to be accepted on purpose."""
        self.query_one(".dialog").border_title = Content(plain(self._question.host))
        self.query_one("#answer" if self._question.is_secret else "#no").focus()

    def on_input_submitted(self) -> None:
        """Enter ends a passphrase."""
        self.action_accept()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        if event.button.id == "yes":
            self.action_accept()
        else:
            self.action_refuse()

    def action_accept(self) -> None:
        """Answer."""
        if not self._question.is_secret:
            self.dismiss("yes")
            return
        self.dismiss(self.query_one("#answer", Input).value or None)

    def action_refuse(self) -> None:
        """Refuse."""
        self.dismiss(None)


_asking: WeakKeyDictionary[App[None], asyncio.Lock] = WeakKeyDictionary()


async def ask_on(app: App[None], question: HostQuestion) -> str | None:
    """Show the question over whatever is on screen and return the answer.

    One after the other: what is typed must not end up in a question that has just come up.
    """
    async with _asking.setdefault(app, asyncio.Lock()):
        return await _ask(app, question)


async def _ask(app: App[None], question: HostQuestion) -> str | None:
    answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def take(answer: str | None) -> None:
        if not answered.done():
            answered.set_result(answer)

    # The caller's task belongs to a connection: the app shows the screen from its own context.
    app.call_later(app.push_screen, HostQuestionScreen(question), take)
    return await answered
