"""A driver of Textual that sends to the terminal only what changed on it."""

from typing import Any

from textual.app import App
from textual.driver import Driver

from eaglemon.tui.terminal_picture import TerminalPicture


def sparing(base: type[Driver]) -> type[Driver]:
    """Return ``base`` so that it leaves out of each frame what the terminal shows already.

    Its ``picture`` is the ``TerminalPicture``.
    """

    class SparingDriver(base):  # type: ignore[misc, valid-type]  # known at run time
        def __init__(
            self,
            app: App[Any],
            *,
            debug: bool = False,
            mouse: bool = True,
            size: tuple[int, int] | None = None,
        ) -> None:
            super().__init__(app, debug=debug, mouse=mouse, size=size)
            self.picture = TerminalPicture()

        def write(self, data: str) -> None:
            changes = self.picture.changes(data)
            if changes:
                super().write(changes)

    return SparingDriver
