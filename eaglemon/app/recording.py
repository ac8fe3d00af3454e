"""Consoles in a file: what was seen, to be looked at again elsewhere (bug reports, demos).

A recording is JSON lines, compressed where the name ends in ``.gz``: a header, then snapshots with
the seconds since the start, at most one each ``STEP_S``, and the last lines of a server's log
whenever its state changes. Command lines in it are masked as they are on screen, and so are the
log's lines where they tell a secret by its name or one that a profile has; prompts of probes are
left out.
"""

import asyncio
import contextlib
import gzip
import io
import os
import stat
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from eaglemon.app.api import Eaglemon, PastLog
from eaglemon.core.experiment_records import Environment
from eaglemon.core.foreign import ForeignServer, ForeignStop, Reached
from eaglemon.core.hosts import HostSpec
from eaglemon.core.probe import ProbePlan, ProbeProgress
from eaglemon.core.problems import Problem
from eaglemon.core.profiles import Profile
from eaglemon.core.redact import mask_line, secrets_of
from eaglemon.core.server_url import Trust
from eaglemon.core.views import LaunchPlan, LogBatch, Needs, ServerView, Snapshot, Told
from eaglemon.errors import ConfigError, EaglemonError, UsageError

VERSION = 1
STEP_S = 1.0
LOG_TAIL = 500
_MAGIC = "eaglemon recording"
_GZIP = 16 + zlib.MAX_WBITS
"""Tells zlib that a gzip header comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One line of a recording; only one of header, snapshot and log is there."""

    at_s: float = 0.0
    """Seconds since the recording began."""
    header: str | None = None
    version: int | None = None
    snapshot: Snapshot | None = None
    server: str | None = None
    log: tuple[str, ...] | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Item)


async def record(console: Eaglemon, path: Path) -> None:
    """Write what ``console`` shows to ``path`` until the call is cancelled.

    Raises ``UsageError`` where that cannot be written, or not any further.
    """
    file = await asyncio.to_thread(_open, path)
    began: float | None = None
    states: dict[str, str] = {}
    try:
        await asyncio.to_thread(_write, path, file, [Item(header=_MAGIC, version=VERSION)])
        async for snapshot in console.updates():
            began = snapshot.at if began is None else began
            at_s = snapshot.at - began
            items = [Item(at_s=at_s, snapshot=_without_prompts(snapshot))]
            for server in snapshot.servers:
                if states.get(server.id) != server.state:
                    states[server.id] = server.state
                    lines = await _last_lines(console, server)
                    items.append(Item(at_s=at_s, server=server.id, log=lines))
            await asyncio.to_thread(_write, path, file, items)
            await asyncio.sleep(STEP_S)
    finally:
        with _writing(path):
            file.close()


def prepare(path: Path) -> None:
    """See to it that ``path`` is there, for its owner alone, before anything is recorded.

    What is in it stays. Raises ``UsageError`` where it cannot be written.
    """
    with _writing(path):
        os.close(_for_its_owner(path, os.O_WRONLY | os.O_CREAT))


def read(path: Path) -> list[Item]:
    """Return a recording's items; raises ``ConfigError`` where it is none.

    A last line that was cut off with its console is left out, and so is the missing end of what
    was compressed.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            # ``gzip`` gives nothing of a stream without an end; each picture was flushed, though.
            data = zlib.decompressobj(wbits=_GZIP).decompress(data)
        lines = data.splitlines()
    except (OSError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    items: list[Item] = []
    for number, line in enumerate(lines, start=1):
        try:
            items.append(_decoder.decode(line))
        except msgspec.DecodeError as error:
            if number == len(lines) and items:
                break
            raise ConfigError(f"{path}:{number}: no line of a recording: {error}") from error
    if not items or items[0].header != _MAGIC:
        raise ConfigError(f"{path} is no recording", hint="make one with eaglemon tui --record")
    if items[0].version != VERSION:
        raise ConfigError(f"{path} was made by another release (format {items[0].version})")
    if not any(item.snapshot for item in items):
        raise ConfigError(f"{path} has no picture in it: its console was left at once")
    return items


class Replay:
    """A recorded console; implements ``Eaglemon`` and can change nothing."""

    def __init__(self, items: Sequence[Item], *, speed: float = 1.0) -> None:
        self._pictures = [(i.at_s, i.snapshot) for i in items if i.snapshot is not None]
        self._logs = [i for i in items if i.log is not None]
        self._speed = speed
        self._now = 0

    @property
    def length_s(self) -> float:
        """How long it is, at its own pace."""
        return self._pictures[-1][0]

    def hosts(self) -> Sequence[HostSpec]:
        """Return the recorded hosts."""
        return [host.spec for host in self.snapshot().hosts]

    def profiles(self) -> Sequence[Profile]:
        """Profiles are not recorded."""
        return ()

    def profile_problems(self) -> Sequence[Problem]:
        """Profiles are not recorded."""
        return ()

    def snapshot(self) -> Snapshot:
        """Return the picture of this moment."""
        return self._pictures[self._now][1]

    async def updates(self) -> AsyncIterator[Snapshot]:
        """Yield the pictures at their pace; the last one stays."""
        while True:
            yield self.snapshot()
            if self._now + 1 >= len(self._pictures):
                await asyncio.Event().wait()
            pause_s = self._pictures[self._now + 1][0] - self._pictures[self._now][0]
            await asyncio.sleep(max(0.0, pause_s) / self._speed)
            self._now += 1

    async def settle(self, *, timeout_s: float = 20.0, needs: Needs = "servers") -> Snapshot:
        """Return the picture of this moment."""
        return self.snapshot()

    def find(self, text: str) -> ServerView:
        """Return a server by id or name."""
        for server in self.snapshot().servers:
            if text in {server.id, server.name}:
                return server
        raise UsageError(f"no server {text!r} in this recording")

    async def logs(
        self, server_id: str, *, follow: bool, tail: int | None = None
    ) -> AsyncIterator[LogBatch]:
        """Yield the lines that were recorded up to now."""
        at_s = self._pictures[self._now][0]
        known = [i for i in self._logs if i.server == server_id and i.at_s <= at_s]
        if known and known[-1].log:
            lines = known[-1].log if tail is None else known[-1].log[-tail:]
            yield LogBatch(lines=tuple(lines), next_offset=0)

    def past_log(self, server_id: str) -> PastLog:
        """A recording keeps the last lines only."""
        raise UsageError(f"the recording keeps the last lines of the log of {server_id} only")

    async def foreign(self, host: str) -> Sequence[ForeignServer]:
        """Servers of others are not recorded."""
        return ()

    async def close(self) -> None:
        """Nothing is open."""

    def plan(
        self, profile: str, host: str, overrides: Mapping[str, str] | None = None
    ) -> LaunchPlan:
        """Refuse."""
        _refuse()

    def relaunch_plan(self, server_id: str, *, forced_length: float | None = None) -> LaunchPlan:
        """Refuse."""
        _refuse()

    async def check(self, plan: LaunchPlan) -> list[Problem]:
        """Refuse."""
        _refuse()

    async def launch(self, plan: LaunchPlan, *, force: bool = False) -> str:
        """Refuse."""
        _refuse()

    async def wait(self, server_id: str, *, timeout_s: float | None = None) -> ServerView:
        """Refuse."""
        _refuse()

    async def stop(
        self, server_id: str, *, grace_s: float | None = None, wait: bool = True
    ) -> ServerView:
        """Refuse."""
        _refuse()

    def add_host(self, spec: HostSpec) -> None:
        """Refuse."""
        _refuse()

    def retry(self, host: str) -> None:
        """Refuse."""
        _refuse()

    async def restart(
        self, server_id: str, *, grace_s: float | None = None, told: Told = None
    ) -> str:
        """Refuse."""
        _refuse()

    async def watch(self, foreign_id: str) -> str:
        """Refuse."""
        _refuse()

    async def stop_foreign(
        self, foreign_id: str, *, grace_s: float, told: Callable[[ForeignStop], None]
    ) -> ForeignStop:
        """Refuse."""
        _refuse()

    async def wait_at(
        self,
        url: str,
        *,
        host: str,
        timeout_s: float,
        api_key: str | None = None,
        trust: Trust | None = None,
    ) -> Reached:
        """Refuse."""
        _refuse()

    async def reach(
        self, url: str, *, host: str, api_key: str | None = None, trust: Trust | None = None
    ) -> str:
        """Refuse."""
        _refuse()

    async def probe(
        self,
        server_id: str,
        plan: ProbePlan | None = None,
        *,
        seen: Callable[[ProbeProgress], None] | None = None,
    ) -> ProbeProgress:
        """Refuse."""
        _refuse()

    def probe_plan(self, server_id: str, overrides: Mapping[str, str] | None = None) -> ProbePlan:
        """Refuse."""
        _refuse()

    async def environment(self, server_id: str) -> Environment:
        """Refuse."""
        _refuse()


def _refuse() -> NoReturn:
    raise UsageError("this is a recording: nothing can be done in it, only looked at")


async def _last_lines(console: Eaglemon, server: ServerView) -> tuple[str, ...]:
    lines: list[str] = []
    try:
        async with asyncio.timeout(5.0):
            async for batch in console.logs(server.id, follow=False, tail=LOG_TAIL):
                lines += batch.lines
    except (EaglemonError, TimeoutError) as error:
        return (f"the log could not be recorded: {error or 'no answer in time'}",)
    known: set[str] = set()
    for profile in console.profiles():
        known |= secrets_of(profile.flags) | secrets_of(profile.env)
    return tuple(mask_line(line, known) for line in lines[-LOG_TAIL:])


def _without_prompts(snapshot: Snapshot) -> Snapshot:
    servers = []
    for server in snapshot.servers:
        if server.probe is not None:
            plan = replace(server.probe.plan, prompts=())
            server = replace(server, probe=replace(server.probe, plan=plan))  # noqa: PLW2901
        servers.append(server)
    # What the agent is started with may hold secrets.
    hosts = [replace(host, spec=replace(host.spec, env={})) for host in snapshot.hosts]
    return replace(snapshot, servers=tuple(servers), hosts=tuple(hosts))


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise UsageError(f"{path}: cannot be written: {reason}") from error


def _open(path: Path) -> io.BufferedIOBase:
    with _writing(path):
        file = os.fdopen(_for_its_owner(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")
        return _Zipped(file) if path.suffix == ".gz" else file


def _for_its_owner(path: Path, flags: int) -> int:
    """Open a file that nobody else may read: logs and command lines are in it."""
    number = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(number).st_mode):
        os.fchmod(number, 0o600)
    return number


class _Zipped(gzip.GzipFile):
    """Compresses into a file and closes it too."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="wb")
        self._file = file

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._file.close()


def _write(path: Path, file: io.BufferedIOBase, items: Sequence[Item]) -> None:
    with _writing(path):
        for item in items:
            file.write(_encoder.encode(item) + b"\n")
        file.flush()
