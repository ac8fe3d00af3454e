"""The part of the application that is about the terminal itself: what is sent to it, and how."""

import os
from collections.abc import Sequence

from rich.console import RenderableType
from textual.app import App
from textual.driver import Driver
from textual.filter import LineFilter
from textual.geometry import Size

from eaglemon.tui.announcing import announcement
from eaglemon.tui.ascii_only import AsciiOnly
from eaglemon.tui.sparing_driver import SparesTerminal, sparing


class TerminalApp(App[None]):
    """An application that sends only what changed, with ASCII alone where that is wanted."""

    def __init__(self, *, ascii_only: bool = False, announces: str = "auto") -> None:
        """``announces`` is one of ``eaglemon.core.terminal.ANNOUNCEMENTS``."""
        self._announces = announces
        self._own_filters = (AsciiOnly(),) if ascii_only else ()
        self._drawn_size: Size | None = None
        super().__init__()

    def get_driver_class(self) -> type[Driver]:
        """Return the platform's driver, made to send only what changed."""
        return sparing(super().get_driver_class())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Add our own filter to Textual's (``NO_COLOR`` is one of those)."""
        return (*super().get_line_filters(), *self._own_filters)

    def on_console_screen_laid_out(self) -> None:
        """Draw everything again after a resize, now that nothing is drawn for the old size.

        A terminal cuts or moves its lines when its size changes, and those that were drawn for the
        old size meanwhile ran over its edge.
        """
        before, self._drawn_size = self._drawn_size, self.size
        if before not in {None, self.size}:
            self.action_repaint()

    def action_repaint(self) -> None:
        """Draw everything again: something else has written on the terminal."""
        driver: object = self._driver
        if isinstance(driver, SparesTerminal):
            driver.picture.forget()
        self.screen.refresh()

    def exit(
        self,
        result: None = None,
        return_code: int = 0,
        message: RenderableType | None = None,
    ) -> None:
        """Leave without waiting for another key."""
        driver: object = self._driver
        if isinstance(driver, SparesTerminal):
            driver.leave()
        super().exit(result, return_code, message)

    def tell_terminal(self, text: str) -> None:
        """Let the terminal ring or show ``text`` as a notification, whichever was chosen."""
        sequence = announcement(text, self._announces, os.environ)
        if sequence and self._driver is not None and not self.is_headless:
            self._driver.write(sequence)
