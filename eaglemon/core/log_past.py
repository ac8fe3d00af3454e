"""What a host tells of the part of a log that stays there: where lines begin, which have a text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlaces:
    """Some places where lines begin, in order."""

    places: tuple[tuple[int, int], ...]
    """(byte offset, line number from 0)."""
    read_bytes: int
    """Looked at so far, of what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHits:
    """Some lines that contain a text, the last one of the log first."""

    numbers: tuple[int, ...]
    """Line numbers, from 0."""
    texts: tuple[str, ...] = ()
    """The lines themselves, of long ones the part around the text, where that was asked for."""
    read_bytes: int
    """Looked at so far, from the end upwards."""
