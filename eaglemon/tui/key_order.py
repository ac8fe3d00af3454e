"""Keys one after the other: each goes where the one before it has led.

Textual hands a key to the widget that has the focus. A letter has its effect there, but a key of a
binding (tab, an arrow, backspace) only once it has come up to the application, and a key that
follows quickly was handed to the widget before.
"""

from collections import deque
from functools import partial

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

LIMIT_S = 1.0
"""A key whose end is not seen by then, because its widget has gone, holds up the others no more."""


class KeysInOrder(App[None]):
    """An application that hands out a key or a paste when the one before has had its effect."""

    def __init__(self) -> None:
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._under_way: events.Event | None = None
        super().__init__()

    async def on_event(self, event: events.Event) -> None:
        """Hand out keys in turn, and everything else at once."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif self._under_way is not None and event is not self._under_way:
            self._waiting.append(event)
            self._limit(self._under_way)
        else:
            self._under_way = event
            await super().on_event(event)
            self._after(self._taker(event), event)

    def _taker(self, event: events.Event) -> MessagePump:
        # A key with priority was dealt with here.
        return self.focused or self.screen if event.is_forwarded else self

    def _after(self, pump: MessagePump, event: events.Event) -> None:
        # What is put into a queue behind the key is done after it.
        if not pump.call_later(self._handled_by, pump, event):
            self._done(event)

    def _handled_by(self, pump: MessagePump, event: events.Event) -> None:
        parent = pump._parent  # noqa: SLF001 -- the way that Textual's own bubbling goes
        if pump is self or parent is None or event._stop_propagation:  # noqa: SLF001
            # It may have asked for another focus, which the application sets in its turn.
            self.call_later(self._done, event)
        else:
            self._after(parent, event)

    def _done(self, event: events.Event) -> None:
        if event is not self._under_way:
            return
        self._under_way = self._waiting.popleft() if self._waiting else None
        if self._under_way is not None:
            if self._waiting:
                self._limit(self._under_way)
            self.post_message(self._under_way)

    def _limit(self, event: events.Event) -> None:
        self.set_timer(LIMIT_S, partial(self._done, event))
