"""Drives the real agent in tests: a link, a live picture of its runs, and waiting with a limit."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from eaglemon.core.runs import RunRequest, RunStatus
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.host_link import HostLink
from eaglemon.io.transport import Transport

LIMIT_S = 60.0


class Runs:
    """The runs of a host as the stream tells them."""

    def __init__(self, link: HostLink) -> None:
        self.known: dict[str, RunStatus] = {}
        self.ready = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._watch(link))

    async def until(
        self, run_id: str, done: Callable[[RunStatus], bool], limit_s: float = LIMIT_S
    ) -> RunStatus:
        """Return the first status of the run for which ``done`` holds."""

        def holds() -> bool:
            return run_id in self.known and done(self.known[run_id])

        await self._wait(holds, limit_s)
        return self.known[run_id]

    async def until_forgotten(self, run_id: str) -> None:
        await self._wait(lambda: run_id not in self.known, LIMIT_S)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _wait(self, holds: Callable[[], bool], limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s), self._changed:
                await self._changed.wait_for(lambda: holds() or self._task.done())
        except TimeoutError:
            raise AssertionError(f"did not happen within {limit_s} s: {self.known}") from None
        if self._task.done():
            self._task.result()

    async def _watch(self, link: HostLink) -> None:
        async with contextlib.aclosing(link.watch_runs(interval_s=0.05)) as items:
            async for changed, gone in items:
                async with self._changed:
                    self.known.update({run.record.id: run for run in changed})
                    for run_id in gone:
                        self.known.pop(run_id, None)
                    self.ready.set()
                    self._changed.notify_all()


@contextlib.asynccontextmanager
async def linked(transport: Transport, state: Path, **env: str) -> AsyncIterator[AgentLink]:
    """Open a link whose records lie in ``state``."""
    link = await AgentLink.open(transport, env={"XDG_STATE_HOME": str(state), **env})
    try:
        yield link
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def watched(link: HostLink) -> AsyncIterator[Runs]:
    """Watch the runs of a link."""
    runs = Runs(link)
    try:
        yield runs
    finally:
        await runs.close()


def request(run_id: str, *argv: str, **values: object) -> RunRequest:
    """Return a request to start ``argv``."""
    fields: dict[str, object] = {
        "id": run_id,
        "name": run_id,
        "profile": "test",
        "digest": "0",
        "engine": "vllm",
        "address": "127.0.0.1",
        "port": 30000,
        "argv": argv,
        "argv_recorded": argv,
    }
    fields.update(values)
    return RunRequest(**fields)  # type: ignore[arg-type]


def python(code: str) -> tuple[str, ...]:
    """Return the command that runs Python code."""
    return sys.executable, "-c", code


def is_alive(pid: int) -> bool:
    """Tell whether a process runs (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


async def until(holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Poll until something holds."""
    async with asyncio.timeout(limit_s):
        while not holds():
            await asyncio.sleep(0.02)


def kill_all_of(state: Path) -> None:
    """End whatever tests left behind: processes whose output goes below ``state``."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            targets = [str((entry / "fd" / number).readlink()) for number in ("1", "2")]
            if any(target.startswith(f"{state}/") for target in targets):
                os.kill(int(entry.name), signal.SIGKILL)


def own_command() -> str:
    """Return this process's command line as a process table shows it."""
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    return b" ".join(words).decode().strip()


def agent_pid(state: Path) -> int:
    """Return the pid of the agent whose records lie in ``state``."""
    wanted = f"XDG_STATE_HOME={state}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError("the agent is not there")
