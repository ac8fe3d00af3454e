"""Reads keys from a terminal and tells the escape key from the beginning of another key soon."""

import os
import selectors
import time
from codecs import getincrementaldecoder

from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

from eaglemon.tui.torn_keys import TornKeys

ESCAPE_S = 0.025
"""Silence after which an escape is the key of that name, where ``ESCDELAY`` (ncurses) says nothing.

Textual waits for 0.1 s. What a terminal sends for a key comes in one piece, over SSH too.
"""
_AFTER_S = 0.002
_IDLE_S = 0.1
_READ_BYTES = 4096
_ESC = "\x1b"


class KeyReader(LinuxDriver):
    """A driver whose thread of keys wakes up as soon as it is known what was pressed."""

    def run_input_thread(self) -> None:
        """Read and pass on keys until the application ends."""
        if "ESCDELAY" not in os.environ:
            constants.ESCAPE_DELAY = ESCAPE_S  # type: ignore[misc]  # it is of the environment
        parser = XTermParser(self._debug)
        torn = TornKeys(escape_s=constants.ESCAPE_DELAY)
        decode = getincrementaldecoder("utf-8")().decode
        # Others cannot wait for a terminal on macOS.
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                held_s = torn.wait_s(time.monotonic())
                if selector.select(_IDLE_S if held_s is None else held_s + _AFTER_S):
                    raw = os.read(self.fileno, _READ_BYTES)
                    if not raw:
                        # Where the input ended there is nothing more to wait for.
                        break
                    whole = torn.feed(decode(raw), time.monotonic())
                else:
                    whole = torn.tick(time.monotonic())
                for text in whole:
                    if text == _ESC:
                        self.process_message(events.Key("escape", text))
                        continue
                    for event in parser.feed(text):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
