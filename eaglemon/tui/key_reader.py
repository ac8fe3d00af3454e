"""Reads keys from a terminal and tells the escape key from the beginning of another key soon."""

import os
import selectors
from codecs import getincrementaldecoder

from textual import constants
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

ESCAPE_S = 0.025
"""Silence after which an escape is the key of that name, where ``ESCDELAY`` (ncurses) says nothing.

Textual waits for 0.1 s. What a terminal sends for a key comes in one piece, over SSH too.
"""
_AFTER_S = 0.002
_IDLE_S = 0.1
_READ_BYTES = 4096


class KeyReader(LinuxDriver):
    """A driver whose thread of keys wakes up as soon as it is known what was pressed."""

    def run_input_thread(self) -> None:
        """Read and pass on keys until the application ends."""
        if "ESCDELAY" not in os.environ:
            constants.ESCAPE_DELAY = ESCAPE_S  # type: ignore[misc]  # it is of the environment
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")().decode
        # Others cannot wait for a terminal on macOS.
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            pressed_escape = False
            while not self.exit_event.is_set():
                wait_s = constants.ESCAPE_DELAY + _AFTER_S if pressed_escape else _IDLE_S
                if selector.select(wait_s):
                    data = decode(os.read(self.fileno, _READ_BYTES))
                    if not data:
                        # Where the input ended there is nothing more to wait for.
                        break
                    pressed_escape = data.endswith("\x1b")
                    for event in parser.feed(data):
                        self.process_message(event)
                else:
                    pressed_escape = False
                for event in parser.tick():
                    self.process_message(event)
