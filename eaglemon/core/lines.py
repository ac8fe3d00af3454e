"""Lines from the bytes of a log that is still being written.

The lines are the same for any split of the bytes. Progress bars rewrite their line with a
carriage return: each rewrite is an update of the same line.
"""

import re
from dataclasses import dataclass

MAX_LINE_BYTES = 65536
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a log, or one update of a progress bar."""

    text: str
    """Decoded, without its terminator, ANSI escapes and control characters."""
    number: int
    """1-based, as an editor counts: a carriage return does not start a new line."""
    end_offset: int
    """Bytes of the stream up to and including its terminator."""
    transient: bool = False
    """A carriage return followed: the text was rewritten on screen."""


def clean(raw: bytes) -> str:
    """Return the text of a line: UTF-8 with replacement, no ANSI escapes, no control characters."""
    text = raw.decode("utf-8", "replace")
    if text.isprintable():
        return text
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text)


class LineSplitter:
    """Cuts a byte stream where lines are complete, in bounded memory.

    ``feed`` returns whole lines with their terminators. Of a line longer than the limit only
    the start is kept; ``offset`` added to a position behind the first line's end gives the
    position in the stream.
    """

    __slots__ = ("_dropped", "_head", "_held", "_limit", "_read", "offset")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._dropped = 0
        self._held = False
        self._read = 0
        self.offset = 0

    @property
    def head(self) -> bytes:
        """The start of the line that is not complete yet."""
        return bytes(self._head)

    @property
    def read(self) -> int:
        """Bytes fed so far."""
        return self._read

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes and return the lines that they complete."""
        self._read += len(data)
        if self._held:
            data = b"\r" + data
        # A carriage return at the end may be half of a line end: it waits for the next byte.
        self._held = data.endswith(b"\r")
        if self._held:
            data = data[:-1]
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end:
            self._keep(data)
            return b""
        region = bytes(self._head) + data[:end]
        rest = data[end:]
        self.offset = self._read - self._held - len(rest) - len(region)
        self._head.clear()
        self._dropped = 0
        self._keep(rest)
        return region

    def close(self) -> bytes:
        """Return what is left, without terminator when it had none."""
        region = bytes(self._head) + (b"\r" if self._held else b"")
        self.offset = self._read - len(region)
        self._head.clear()
        self._held = False
        self._dropped = 0
        return region

    def _keep(self, data: bytes) -> None:
        room = self._limit - len(self._head)
        if len(data) > room:
            self._dropped += len(data) - room
            data = data[:room]
        self._head += data

    @property
    def dropped(self) -> int:
        """Bytes left out of the incomplete line."""
        return self._dropped


class LineAssembler:
    """Turns chunks of a log into lines; the same lines for every way to cut the chunks."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._limit = max_line_bytes
        self._splitter = LineSplitter(max_line_bytes)
        self._number = 1
        self.cut_lines = 0
        """Lines of which only the start was kept."""
        self.cut_bytes = 0
        self.line_start = 0
        """Where the line begins that is not complete yet, in bytes of the stream."""

    def texts(self, data: bytes) -> list[tuple[list[str], int]]:
        """Take the next bytes and return the texts of lines that they complete, many at a time.

        Each piece is (texts, where the last of them ends in the stream). A progress bar comes as
        its last state. A line that was cut ends a piece. Faster than ``feed`` by far.
        """
        dropped = self._splitter.dropped
        region = self._splitter.feed(data)
        if not region:
            return []
        if not dropped and b"\r" not in region and len(region) <= 2 * self._limit:
            text = region.decode("utf-8", "replace")
            if "\x1b" not in text and _CONTROLS.search(text) is None:
                lines = text.split("\n")
                lines.pop()
                if len(region) <= self._limit or max(map(len, lines)) <= self._limit // 4:
                    self._number += len(lines)
                    self.line_start = self._splitter.offset + len(region)
                    return [(lines, self.line_start)]
        return self._pieces(self._lines(region, dropped))

    def close_texts(self) -> list[tuple[list[str], int]]:
        """Return the last line, as ``texts`` does, when it has no terminator."""
        return self._pieces(self.close())

    def _pieces(self, found: list[Line]) -> list[tuple[list[str], int]]:
        pieces: list[tuple[list[str], int]] = []
        texts: list[str] = []
        for line in found:
            if line.transient:
                continue
            texts.append(line.text)
            length = line.end_offset - self.line_start
            self.line_start = line.end_offset
            if length > self._limit:
                pieces.append((texts, self.line_start))
                texts = []
        if texts:
            pieces.append((texts, self.line_start))
        return pieces

    def feed(self, data: bytes) -> list[Line]:
        """Take the next bytes and return the lines they complete."""
        dropped = self._splitter.dropped
        return self._lines(self._splitter.feed(data), dropped)

    def close(self) -> list[Line]:
        """Return the last line when it has no terminator."""
        dropped = self._splitter.dropped
        return self._lines(self._splitter.close(), dropped)

    def _lines(self, region: bytes, dropped: int) -> list[Line]:
        lines = []
        for match in _LINE.finditer(region):
            raw, terminator = match.groups()
            if not raw and terminator in (b"", b"\r"):
                continue
            excess = max(0, len(raw) - self._limit) + dropped
            dropped = 0
            if excess:
                self.cut_lines += 1
                self.cut_bytes += excess
                raw = raw[: self._limit]
            transient = terminator == b"\r"
            lines.append(
                Line(
                    text=clean(raw),
                    number=self._number,
                    end_offset=self._splitter.offset + match.end(),
                    transient=transient,
                )
            )
            self._number += not transient
        return lines
