"""Messages in the corner: one for each action, and none over a dialog that was just opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from textual.notifications import Notification, Notify, SeverityLevel
from textual.screen import ModalScreen, Screen

from eaglemon.tui.key_order import KeysInOrder

_about: ContextVar[str] = ContextVar("eaglemon-toast", default="")
"""The action under way; workers that it started speak of it too."""


@contextmanager
def speaking_of(action: str) -> Iterator[None]:
    """Let what is said meanwhile replace what was said of the same action before."""
    token = _about.set(action)
    try:
        yield
    finally:
        _about.reset(token)


class ToastingApp(KeysInOrder):
    """An application whose messages do not pile up."""

    def __init__(self) -> None:
        self._toasts: dict[str, Notification] = {}
        """The last message about each action, else with each text."""
        super().__init__()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a message in place of the one about the same action, or of the same text."""
        seconds = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        toast = Notification(message, title, severity, seconds, markup=markup)
        self._toasts = {key: one for key, one in self._toasts.items() if not one.has_expired}
        about = _about.get() or message
        before = self._toasts.get(about)
        if before is not None:
            self._unnotify(before, refresh=False)
            before.timeout = 0  # It may still be on its way to be shown.
        self._toasts[about] = toast
        self.post_message(Notify(toast))

    def push_screen(self, screen: Screen[Any] | str, *args: Any, **kwargs: Any) -> Any:
        """Show a screen; a dialog's buttons are not to be covered by what was said before."""
        if isinstance(screen, ModalScreen):
            self.clear_notifications()
        return super().push_screen(screen, *args, **kwargs)
