"""The runs of a host without python3, as one round of ``em_runs`` after the other tells them."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace

from eaglemon.core.runs import DamagedRun, RunStatus
from eaglemon.io import shell_values as values
from eaglemon.io.clock import Clock
from eaglemon.io.host_link import RunChanges

_END = f"{values.US}."
_STILL_THERE = "="


async def unless_silent(
    blocks: AsyncGenerator[str, None], limit_s: float, clock: Clock, *, step_s: float = 1.0
) -> AsyncGenerator[str | float, None]:
    """Yield the blocks; each ``step_s`` without one, after ``limit_s``, the seconds since one."""
    heard_at = clock.monotonic()
    pending = asyncio.ensure_future(anext(blocks))
    try:
        while True:
            await asyncio.wait([pending], timeout=step_s)
            if not pending.done():
                silent_s = clock.monotonic() - heard_at
                if silent_s > limit_s:
                    yield silent_s
                continue
            block = pending.result()
            heard_at = clock.monotonic()
            pending = asyncio.ensure_future(anext(blocks))
            yield block
    except StopAsyncIteration:
        return
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        await blocks.aclose()


class SeenRuns:
    """What is known of the runs; ``take`` tells what a round changed."""

    def __init__(self, boot_id: str) -> None:
        self.damaged: Mapping[str, DamagedRun] = {}
        self.owners: Mapping[int, str] = {}
        """Pid to run id."""
        self._boot_id = boot_id
        self._blocks: list[str] = []
        self._before: dict[str, RunStatus] | None = None
        self._doubtful: set[str] = set()
        self._round: list[str] = []
        """The blocks of the last round; it is not sent again while nothing changes."""
        self._unchanged = 0
        """How often that was told since."""

    def take(self, block: str) -> RunChanges | None:
        """Take one block of a round; return the changes at its end, if there are any."""
        if block.strip("\n") == _STILL_THERE:
            # Each round says so once itself.
            self._unchanged += 1
            return self._end_round(self._round) if self._unchanged == 2 and self._doubtful else None
        if block.strip("\n") != _END:
            self._blocks.append(block)
            return None
        self._round, self._blocks, self._unchanged = self._blocks, [], 0
        return self._end_round(self._round)

    def _end_round(self, blocks: list[str]) -> RunChanges | None:
        damaged: dict[str, DamagedRun] = {}
        runs = values.runs_of(blocks, self._boot_id, damaged)
        found = {one.record.id: one for one in runs}
        self.damaged = damaged
        before = self._before
        guessed = {
            name
            for name, one in found.items()
            if one.exit is not None and values.told_exit(one) is None
        }
        # Between a server's end and its record by the supervisor lies a moment.
        for name in guessed - self._doubtful:
            if before is not None and name in before and before[name].exit is None:
                found[name] = replace(found[name], exit=None)
        self._doubtful = guessed
        self.owners = {
            process.pid: name for name, one in found.items() for process in one.processes
        }
        known = before or {}
        changed = tuple(one for name, one in found.items() if known.get(name) != one)
        gone = tuple(name for name in known if name not in found)
        self._before = found
        return (changed, gone) if before is None or changed or gone else None
