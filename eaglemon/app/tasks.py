"""Named background tasks with one owner: started, replaced, cancelled and awaited in one place."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

_log = logging.getLogger(__name__)


class TaskBag:
    """Tasks by name; starting a name again replaces the task that had it."""

    def __init__(
        self,
        owner: str,
        *,
        broken: dict[str, str] | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``broken`` takes the error of each task that ended by one, until it is started again."""
        self._owner = owner
        self._broken = {} if broken is None else broken
        self._changed = changed
        self._named: dict[str, asyncio.Task[None]] = {}
        self._all: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run ``work`` as ``name``."""
        self.cancel(name)
        self._broken.pop(name, None)
        task = asyncio.create_task(work, name=f"{self._owner}: {name}")
        self._named[name] = task
        self._all.add(task)
        task.add_done_callback(self._done)

    def keep(self, name: str, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run ``work()`` as ``name`` unless that is under way: also when it says so itself."""
        if not self.running(name):
            self.start(name, work())

    def cancel(self, name: str) -> None:
        """Cancel the task called ``name``, if there is one."""
        task = self._named.pop(name, None)
        # A task may start its own successor as its last act; it is ending anyway. One that goes
        # on is for ``keep``.
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def running(self, name: str) -> bool:
        """Tell whether the task called ``name`` is under way."""
        task = self._named.get(name)
        return task is not None and not task.done()

    async def finish(self, name: str) -> None:
        """Wait until the task called ``name`` has ended by itself, if it is under way."""
        task = self._named.get(name)
        if task is not None:
            await asyncio.wait({task})

    async def finish_all(self) -> None:
        """Wait until every task has ended by itself."""
        while self._all:
            await asyncio.wait(self._all)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self._named.clear()
        tasks = [task for task in self._all if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._all.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s ended unexpectedly", task.get_name(), exc_info=error)
            for name, named in self._named.items():
                if named is task:
                    self._broken[name] = f"{type(error).__name__}: {error}"
            self._changed()
