"""Server-sent events from bytes, as the HTML standard defines the stream."""

from dataclasses import dataclass

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Cumulative answers grow with the text; an event beyond this is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SseEvent:
    """One event: its data lines joined by a line feed, and its type where given."""

    data: str
    event: str | None = None


class SseDecoder:
    """Turns the chunks of a response body into events; the same for any way to cut them."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._line = bytearray()
        self._after_return = False
        self._first = True
        self._data: list[bytes] = []
        self._size = 0
        self._event: bytes | None = None
        self.cut_events = 0
        """Events that were longer than the limit."""
        self._cut = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take the next bytes and return the events that they complete."""
        if self._after_return and chunk:
            self._after_return = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if chunk.endswith(b"\r"):
            self._after_return = True
        events: list[SseEvent] = []
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            self._extend(line)
            self._end_line(events)
        self._extend(lines[-1])
        return events

    def close(self) -> list[SseEvent]:
        """Return the last event when the stream ended without its empty line.

        The standard drops it; engines that die leave one, and its error message is wanted.
        """
        events: list[SseEvent] = []
        if self._line:
            self._end_line(events)
        self._dispatch(events)
        return events

    def _extend(self, part: bytes) -> None:
        room = self._limit - self._size - len(self._line)
        if len(part) > room:
            self._cut = True
            part = part[: max(0, room)]
        self._line += part

    def _end_line(self, events: list[SseEvent]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._event = value

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            events.append(
                SseEvent(
                    data=b"\n".join(self._data).decode("utf-8", "replace"),
                    event=self._event.decode("utf-8", "replace") if self._event else None,
                )
            )
        if self._cut:
            self.cut_events += 1
        self._cut = False
        self._data = []
        self._size = 0
        self._event = None
