"""Frames of an agent's streams on their way to their readers, and what a slow reader misses."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from eaglemon.core.frames import Frame
from eaglemon.errors import AgentError
from eaglemon.io import agent_values as values

Merge = Callable[[deque[Frame], Frame], None]
"""Puts a new frame to those that wait."""


class FrameStream:
    """Frames of one stream on their way to its reader."""

    def __init__(self, merge: Merge) -> None:
        self._merge = merge
        self._frames: deque[Frame] = deque()
        self._changed = asyncio.Event()
        self._over = False
        self._error: Exception | None = None

    def push(self, frame: Frame) -> None:
        """Take a frame."""
        self._merge(self._frames, frame)
        self._changed.set()

    def end(self, error: Exception | None) -> None:
        """Let the reader end, after what waits, with ``error`` if there is one."""
        self._over, self._error = True, error
        self._changed.set()

    async def next(self) -> Frame | None:
        """Return the next frame, ``None`` at the end; raises what ended the stream."""
        while not self._frames:
            if self._over:
                if self._error is not None:
                    raise self._error
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._frames.popleft()


def keep_all(frames: deque[Frame], frame: Frame) -> None:
    """Keep every frame."""
    frames.append(frame)


def keep_latest(frames: deque[Frame], frame: Frame) -> None:
    """Keep the newest frame only."""
    frames.clear()
    frames.append(frame)


def merge_runs(frames: deque[Frame], frame: Frame) -> None:
    """Merge changes of runs into one frame."""
    if not frames:
        frames.append(frame)
        return
    before, after = item_of(frames.pop()), item_of(frame)
    runs: dict[object, object] = {}
    gone: dict[object, None] = {}
    for item in (before, after):
        for run_id in values.take_sequence(item, "gone"):
            runs.pop(run_id, None)
            gone[run_id] = None
        for run in values.take_sequence(item, "runs"):
            run_id = _id_of(run)
            gone.pop(run_id, None)
            runs[run_id] = run
    item = {"runs": list(runs.values()), "gone": list(gone), "silent": after.get("silent")}
    frames.append(Frame(head={"id": frame.head["id"], "item": item}))


def _id_of(run: object) -> object:
    record = run.get("record") if isinstance(run, Mapping) else None
    return record.get("id") if isinstance(record, Mapping) else None


def item_of(frame: Frame) -> Mapping[str, object]:
    """Return the item of a stream's frame; raises ``AgentError``."""
    item = frame.head.get("item")
    if not isinstance(item, Mapping):
        raise AgentError("the agent sent an item that is no object", kind="protocol")
    return item


def error_of(frame: Frame) -> AgentError | None:
    """Return the error that a frame tells, ``None`` when it tells none."""
    error = frame.head.get("error")
    if error is None:
        return None
    if not isinstance(error, Mapping):
        return AgentError("the agent sent a malformed error", kind="protocol")
    return AgentError(str(error.get("message")), kind=str(error.get("kind")))
