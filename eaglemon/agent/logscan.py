"""Runs on a host (``program.run``): finds where lines of a log begin, and which contain a text.

Python 3.8, standard library. ``EAGLEMON_INPUT`` is JSON.
``{"do": "index", "path", "until"}`` prints ``{"entries": [offset, line, ...], "read": bytes}``:
about every ``STEP_BYTES`` a place where a line begins, the last at ``until``.
``{"do": "search", "path", "from", "until", "line", "text", "ignore_case", "most", "with_texts"}``
looks upwards from ``until``, where line number ``line`` begins, to ``from``, where one begins too,
and prints ``{"hits": [line, ...], "read": bytes}``, with ``texts`` where wanted, at most ``most``
hits. Both end with
``{"done": true}``; ``{"changed": true}`` says that the log is not the one it was. Lines count from
0, and a carriage return begins none. No more than a few blocks of the log are held in memory.
"""

import json
import os
import sys
import time
from typing import Any, Dict, Iterator, List, Optional

Json = Dict[str, Any]

BLOCK_BYTES = 1 << 20
STEP_BYTES = 64 << 10
AROUND_BYTES = 4096
"""Of a line with a hit so much is read to each side of it."""
TELL_S = 0.1
BATCH = 2000


class ChangedError(Exception):
    """The log is shorter than it was."""


def tell(**values: Any) -> None:
    """Print one JSON object."""
    os.write(1, json.dumps(values).encode() + b"\n")


def read_at(handle: int, offset: int, count: int) -> bytes:
    """Return exactly ``count`` bytes; raises ``ChangedError`` where the file has fewer."""
    parts: List[bytes] = []
    while count:
        data = os.pread(handle, count, offset)
        if not data:
            raise ChangedError
        parts.append(data)
        offset += len(data)
        count -= len(data)
    return b"".join(parts)


def index(handle: int, until: int) -> Iterator[Json]:
    """Yield where lines begin, from the start of the file on.

    A line longer than a step stands alone between two places.
    """
    entries: List[int] = [0, 0]
    told = time.monotonic()
    last = offset = line = 0  # the last place; bytes read; line feeds among them
    begin = 0  # where the line that is being read begins
    while offset < until:
        data = read_at(handle, offset, min(BLOCK_BYTES, until - offset))
        counted = 0
        while True:
            # The next line feed a step behind the last place, or behind what was looked at.
            wanted = max(counted, last + STEP_BYTES - offset)
            feed = data.find(b"\n", wanted) if wanted < len(data) else -1
            if feed < 0:
                line += data.count(b"\n", counted)
                newest = data.rfind(b"\n", counted)
                begin = offset + newest + 1 if newest >= 0 else begin
                break
            before = data.rfind(b"\n", counted, feed)
            begin = offset + before + 1 if before >= 0 else begin
            line += data.count(b"\n", counted, feed)
            end = offset + feed + 1
            if end - begin > STEP_BYTES and begin > last:
                entries += [begin, line]
            line += 1
            entries += [end, line]
            last = begin = end
            counted = feed + 1
        offset += len(data)
        if time.monotonic() - told > TELL_S or len(entries) > 2 * BATCH:
            yield {"entries": entries, "read": offset}
            entries, told = [], time.monotonic()
    if begin < until:
        line += 1  # the last line has no line feed
    if last != until:
        entries += [until, line]
    yield {"entries": entries, "read": until}


def search(handle: int, job: Json) -> Iterator[Json]:
    """Yield the lines that contain a text, the last one first."""
    fold, most = bool(job["ignore_case"]), int(job["most"])
    text = str(job["text"]).encode("utf-8", "surrogateescape")
    wanted = text.lower() if fold else text
    upper, line, begin_at = int(job["until"]), int(job["line"]), int(job.get("from", 0))
    until, after = upper, b""
    hits: List[int] = []
    texts: List[str] = []
    found, last, told = 0, -1, time.monotonic()
    while upper > begin_at and found < most:
        lower = max(begin_at, upper - BLOCK_BYTES)
        raw = read_at(handle, lower, upper - lower) + after
        seen = raw.lower() if fold else raw
        at = upper - lower
        place = seen.rfind(wanted)
        while place >= 0 and found < most:
            line -= seen.count(b"\n", place, at)
            at = place
            if line != last:
                hits.append(line)
                last = line
                found += 1
                if job.get("with_texts"):
                    texts.append(line_around(handle, lower + place))
            begin = seen.rfind(b"\n", 0, place)
            place = seen.rfind(wanted, 0, begin) if begin > 0 else -1
        line -= seen.count(b"\n", 0, at)
        upper, after = lower, raw[: len(wanted) - 1]
        if time.monotonic() - told > TELL_S or len(hits) > BATCH:
            yield {"hits": hits, "texts": texts, "read": until - upper}
            hits, texts, told = [], [], time.monotonic()
    yield {"hits": hits, "texts": texts, "read": until - upper}


def line_around(handle: int, offset: int) -> str:
    """Return the line at an offset, of a long one the part around it."""
    lower = max(0, offset - AROUND_BYTES)
    before = os.pread(handle, offset - lower, lower)
    after = os.pread(handle, AROUND_BYTES, offset)
    head = before[before.rfind(b"\n") + 1 :]
    return (head + after.split(b"\n", 1)[0]).decode("utf-8", "replace")


def main(job: Json) -> Optional[int]:
    """Do what was asked; returns an exit status where that failed."""
    try:
        handle = os.open(job["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if os.fstat(handle).st_size < int(job["until"]):
                raise ChangedError
            told = index(handle, int(job["until"])) if job["do"] == "index" else search(handle, job)
            for item in told:
                tell(**item)
            tell(done=True)
        finally:
            os.close(handle)
    except ChangedError:
        tell(changed=True)
    except OSError as error:
        sys.stderr.write("%s: %s\n" % (job["path"], error.strerror))
        return 1
    return None


if "EAGLEMON_INPUT" in globals():
    sys.exit(main(json.loads(globals()["EAGLEMON_INPUT"])))
