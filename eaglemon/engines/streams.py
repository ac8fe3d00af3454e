"""What the engines' streams have in common: JSON objects, one of which may be an error."""

import json
from collections.abc import Mapping
from typing import Any

from eaglemon.core.sse import SseEvent
from eaglemon.engines.base import StreamFailed

DONE = "[DONE]"
"""The data of the event that ends a stream."""


def read_chunk(event: SseEvent, title: str) -> Mapping[str, Any] | StreamFailed:
    """Return the JSON object of an event, or what stands in its place, in words."""
    try:
        chunk = json.loads(event.data)
    except (ValueError, RecursionError):
        return StreamFailed(message=f"{title} sent something that is no JSON: {event.data[:80]!r}")
    if not isinstance(chunk, dict):
        return StreamFailed(message=f"{title} sent something that is no answer: {chunk!r:.80}")
    if chunk.get("error") is not None:
        return StreamFailed(message=error_text(chunk))
    return chunk


def whole(value: object) -> int | None:
    """Return a whole number that is not negative, ``None`` for anything else."""
    return value if type(value) is int and value >= 0 else None


def histogram_of(value: object, steps: int) -> list[int] | None:
    """Return a histogram over verify steps, ``None`` where it is none or not of ``steps``."""
    if not isinstance(value, list) or any(whole(count) is None for count in value):
        return None
    return value if value and sum(value) == steps else None


def error_text(answer: Mapping[str, Any]) -> str:
    """Return the message of an error answer, of a stream or of a plain response."""
    error = answer.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)
