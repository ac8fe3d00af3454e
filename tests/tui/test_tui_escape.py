"""The escape key alone, and keys that begin with one, from a real terminal's bytes."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

import pytest
from textual import constants, events
from textual.message import Message

from eaglemon.cli.tui import takes_mouse
from eaglemon.tui.key_reader import ESCAPE_S, KeyReader


class Reading(KeyReader):
    """Reads from a pipe; nothing is set up, nothing drawn."""

    def __init__(self, file: int) -> None:
        self.fileno = file
        self._debug = False
        self.exit_event = threading.Event()
        self.seen: Queue[str] = Queue()

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key):
            self.seen.put(message.key)


@contextmanager
def reading() -> Iterator[tuple[Reading, int]]:
    source, target = os.pipe()
    keys = Reading(source)
    thread = threading.Thread(target=keys.run_input_thread)
    thread.start()
    try:
        yield keys, target
    finally:
        keys.exit_event.set()
        os.close(target)
        thread.join()
        os.close(source)


def test_escape_alone_is_a_key_and_the_start_of_another_is_none() -> None:
    with reading() as (keys, target):
        os.write(target, b"\x1b")
        assert keys.seen.get(timeout=60) == "escape"
        os.write(target, b"\x1b[Aj")
        assert [keys.seen.get(timeout=60) for _ in range(2)] == ["up", "j"]


def test_who_sets_escdelay_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ESCAPE_DELAY", 7.0)
    monkeypatch.setenv("ESCDELAY", "7000")
    with reading():
        pass
    assert constants.ESCAPE_DELAY == 7.0
    monkeypatch.delenv("ESCDELAY")
    with reading():
        pass
    assert constants.ESCAPE_DELAY == ESCAPE_S


def test_gnu_screen_is_not_asked_for_the_mouse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STY", raising=False)
    assert takes_mouse()
    monkeypatch.setenv("STY", "1234.pts-0.host")
    assert not takes_mouse()
