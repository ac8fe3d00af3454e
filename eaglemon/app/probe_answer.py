"""One streamed answer as a record: its arrivals, its end and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eaglemon.core.probe import Arrival, RequestRecord, RequestStatus
from eaglemon.core.sse import SseDecoder, SseEvent
from eaglemon.engines.base import (
    AnswerSeen,
    StreamDecoder,
    StreamEvent,
    StreamFailed,
    TokensSeen,
)
from eaglemon.errors import AgentError

_SHOWN_BODY = 200


class Answer:
    """Collects one answer, from its bytes or from the events that a generator on a host kept."""

    def __init__(self, decoder: StreamDecoder) -> None:
        self._decoder = decoder
        self._sse = SseDecoder()
        self._arrivals: list[Arrival] = []
        self._received = 0
        self._untold = False
        """Some chunk did not tell how many tokens it has."""
        self._end: AnswerSeen | None = None
        self._spoilt = False
        self.failure: str | None = None
        """The engine said that it failed."""
        self.broken: str | None = None
        """The stream broke off."""

    @property
    def tokens(self) -> int:
        """Tokens received so far, without those of chunks that do not tell how many they have."""
        return self._received

    def feed(self, chunk: bytes, at_s: float) -> None:
        """Take bytes that arrived ``at_s`` after the request was sent."""
        for event in self._sse.feed(chunk):
            self._decode(event, at_s, count=True)

    def close(self, at_s: float) -> None:
        """Take the end of the bytes."""
        for event in self._sse.close():
            self._decode(event, at_s, count=True)

    def take_events(self, events: Sequence[object]) -> None:
        """Take the events of a generator on the host: [seconds, running number, data].

        The number counts the tokens where there is one; the data that was kept says the rest. A
        number whose chunk carries no tokens (the usage of the whole answer) is no arrival.
        """
        for event in events:
            at_s, running, data = _event(event)
            if running is None:
                self._decode(SseEvent(data=data or ""), at_s, count=True)
            elif data is None or self._decode(SseEvent(data=data), at_s, count=False):
                self._arrive(running - self._received, at_s)

    def refuse(self, status: int, body: bytes) -> None:
        """Take an answer that is no stream."""
        text = body[:_SHOWN_BODY].decode("utf-8", "replace").strip()
        self.failure = f"HTTP {status}: {text}"

    def record(
        self, number: int, prompt_id: str, *, sent_at: float, took_s: float
    ) -> RequestRecord:
        """Return the record of the request."""
        end = self._end
        if self.failure is not None or (self.broken is not None and not self._arrivals):
            status = RequestStatus.FAILED
        elif self.broken is not None or end is None:
            status = RequestStatus.CUT
        else:
            status = RequestStatus.OK
        error = self.failure or self.broken
        if status is RequestStatus.CUT and error is None:
            error = "the stream ended before the answer did"
        arrivals = tuple(self._arrivals)
        total = end.completion_tokens if end else None
        if self._untold and end is not None and total == len(arrivals):
            arrivals = tuple(replace(one, tokens=1) for one in arrivals)
        elif self._untold:
            # What later chunks tell counts the tokens of those before, too.
            arrivals = tuple(replace(one, tokens=None) for one in arrivals)
        elif total is None:
            total = self._received
        return RequestRecord(
            number=number,
            prompt_id=prompt_id,
            status=status,
            sent_at=sent_at,
            took_s=took_s,
            arrivals=arrivals,
            completion_tokens=total,
            prompt_tokens=end.prompt_tokens if end else None,
            counts=end.counts if end else None,
            error=error,
            request_id=end.request_id if end else None,
        )

    def _decode(self, event: SseEvent, at_s: float, *, count: bool) -> bool:
        """Take what an event says, its tokens with ``count``; return whether it carries any."""
        carries = False
        for seen in self._feed(event):
            match seen:
                case TokensSeen(new_tokens=tokens):
                    carries = True
                    if count:
                        self._arrive(tokens, at_s)
                case AnswerSeen():
                    self._end = seen
                case StreamFailed(message=message):
                    self.failure = message
        return carries

    def _feed(self, event: SseEvent) -> list[StreamEvent]:
        """Decode an event; whatever a server sends spoils no more than its own request."""
        if self._spoilt:
            return []
        try:
            return self._decoder.feed(event)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            self._spoilt = True
            reason = f"{type(error).__name__}: {error}"
            return [
                StreamFailed(message=f"the answer cannot be read ({reason}): {event.data[:80]!r}")
            ]

    def _arrive(self, tokens: int | None, at_s: float) -> None:
        if tokens is None:
            self._untold = True
            self._arrivals.append(Arrival(at_s=at_s, tokens=None))
        elif tokens > 0:
            self._arrivals.append(Arrival(at_s=at_s, tokens=tokens))
            self._received += tokens


def _event(event: object) -> tuple[float, int | None, str | None]:
    match event:
        case [int() | float() as at_s, int() | None as running, str() | None as data]:
            return float(at_s), running, data
    raise AgentError(f"the load generator told a malformed event: {event!r:.80}", kind="protocol")


def number_in(item: Mapping[str, object], key: str) -> float:
    """Return a number that the generator told; raises ``AgentError``."""
    value = item.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise AgentError(f"the load generator told no {key}", kind="protocol")
