"""A driver of Textual that sends to the terminal only what changed on it, and ends at once."""

import contextlib
import signal
import threading
from typing import Any

from textual.app import App
from textual.driver import Driver

from eaglemon.tui.terminal_picture import TerminalPicture

_NO_MOUSE = "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"


class SparesTerminal:
    """What ``sparing`` adds to a driver."""

    picture: TerminalPicture

    def leave(self) -> None:
        """Begin to end: from now on no keys are read."""
        raise NotImplementedError


def sparing(base: type[Driver]) -> type[Driver]:
    """Return ``base`` so that it leaves out of each frame what the terminal shows already.

    Its instances have what ``SparesTerminal`` has.
    """

    class SparingDriver(base, SparesTerminal):  # type: ignore[misc, valid-type]  # of run time
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
            self._leaving = False

        def write(self, data: str) -> None:
            changes = self.picture.changes(data)
            if changes:
                super().write(changes)

        def leave(self) -> None:
            # Textual's thread of keys looks up ten times a second, and waits once more when it
            # ends: joining it is most of the time that leaving takes, and it is no longer needed.
            event = getattr(self, "exit_event", None)
            if isinstance(event, threading.Event) and getattr(self, "input_tty", False):
                self._leaving = True
                event.set()

        def disable_input(self) -> None:
            if not self._leaving:
                super().disable_input()
                return
            # What the method that is left out does besides joining that thread.
            import termios  # noqa: PLC0415 -- only there where keys come from such a thread

            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
            self.write(_NO_MOUSE)
            self.flush()
            with contextlib.suppress(termios.error):
                termios.tcflush(self.fileno, termios.TCIFLUSH)

    return SparingDriver
