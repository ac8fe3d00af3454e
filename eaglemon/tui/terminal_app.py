"""The part of the application that is about the terminal itself: what is sent to it, and how."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rich.console import RenderableType
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.driver import Driver
from textual.filter import LineFilter, Monochrome
from textual.geometry import Size
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from eaglemon.tui.announcing import announcement
from eaglemon.tui.ascii_only import AsciiOnly
from eaglemon.tui.colourless import Colourless
from eaglemon.tui.sparing_driver import SparesTerminal, sparing
from eaglemon.tui.toasts import ToastingApp


class TerminalApp(ToastingApp):
    """An application that sends only what changed, with ASCII alone where that is wanted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # Also in dialogs, as in any program of a terminal.
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, *, ascii_only: bool = False, announces: str = "auto") -> None:
        """``announces`` is one of ``eaglemon.core.terminal.ANNOUNCEMENTS``."""
        self._announces = announces
        self._own_filters: tuple[LineFilter, ...] = (AsciiOnly(),) if ascii_only else ()
        self._drawn_size: Size | None = None
        super().__init__()
        if self.no_color:
            # Textual's own leaves shades of grey, which are colours that a terminal has to have.
            self._filters = [one for one in self._filters if not isinstance(one, Monochrome)]
            self._own_filters = (Colourless(), *self._own_filters)

    @staticmethod
    def built_in_themes() -> list[str]:
        """Return the names of Textual's own themes, in order."""
        return sorted(BUILTIN_THEMES)

    def action_suspend_process(self) -> None:
        """Give the terminal back to the shell until ``fg``, or say that there is none."""
        if self._driver is not None and self._driver.can_suspend:
            super().action_suspend_process()
        else:
            self.notify("only in a terminal can the console be put to sleep", severity="warning")

    def action_command_palette(self) -> None:
        """Show the palette; its field says what it is for without a sign that ASCII lacks."""
        if self.use_command_palette and not isinstance(self.screen, CommandPalette):
            palette = CommandPalette(placeholder="Search for commands", id="--command-palette")
            self.push_screen(palette)

    def push_screen(self, screen: Screen[Any] | str, *args: Any, **kwargs: Any) -> Any:
        """Show a screen that knows from the start how much room there is.

        Textual would say so after a first layout, and then style and lay out everything again.
        """
        if isinstance(screen, Screen):
            screen.add_class(*self._size_classes())
        return super().push_screen(screen, *args, **kwargs)

    def _size_classes(self) -> Iterator[str]:
        width, height = self.size
        for length, points in (
            (width, self.HORIZONTAL_BREAKPOINTS),
            (height, self.VERTICAL_BREAKPOINTS),
        ):
            reached = [name for least, name in sorted(points or ()) if length >= least]
            yield from reached[-1:]

    def get_driver_class(self) -> type[Driver]:
        """Return the platform's driver, made to send only what changed and to tell esc soon."""
        driver = super().get_driver_class()
        if driver.__name__ == "LinuxDriver":
            # It cannot be imported everywhere.
            from eaglemon.tui.key_reader import KeyReader  # noqa: PLC0415

            driver = KeyReader
        return sparing(driver)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Add our own filters to Textual's."""
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
