"""Opens the domain API for one command and runs the command's work on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from eaglemon.app.api import Eaglemon
from eaglemon.app.hub import Hub
from eaglemon.app.named_servers import matching
from eaglemon.app.read_only import ReadOnlyHub
from eaglemon.cli import diagnostics, running
from eaglemon.cli.progress import Progress
from eaglemon.cli.questions import tell_person, terminal_asker
from eaglemon.cli.read_only import is_read_only
from eaglemon.core.foreign import parse_foreign_id
from eaglemon.core.hosts import HostSpec
from eaglemon.core.views import Needs, ServerView, Snapshot
from eaglemon.errors import HostError, UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.seen_servers import remember_servers
from eaglemon.io.store import Store
from eaglemon.io.transport import Asker
from eaglemon.io.workloads import load_workload

Result = TypeVar("Result")


@asynccontextmanager
async def open_console(
    hosts: Sequence[HostSpec], profiles: ProfileStore, *, ask: Asker | None = None
) -> AsyncIterator[Eaglemon]:
    """Open the domain API on ``hosts``; servers keep running after it is closed.

    ``ask`` asks a person about keys; the terminal does by default, where there is one.
    """
    kind = ReadOnlyHub if is_read_only() else Hub
    store = Store()
    # A console that asks by itself also shows what a login waits for.
    tell = tell_person if ask is None else None
    connect = partial(transport_to, ask=ask or terminal_asker(), tell=tell)
    try:
        async with kind(
            hosts, profiles, connect=connect, workload=load_workload, history=store
        ) as hub:
            try:
                yield hub
            finally:
                await asyncio.to_thread(remember_servers, hub.snapshot())
    finally:
        await store.close()


def run_on(
    hosts: Sequence[HostSpec],
    profiles: ProfileStore,
    work: Callable[[Eaglemon], Awaitable[Result]],
    *,
    if_interrupted: str | Callable[[], str] = "",
    stopping: Callable[[], Sequence[str]] = tuple,
) -> Result:
    """Run ``work`` on a console of these hosts.

    Ctrl-C cancels it, closes the console and raises ``InterruptedByPersonError``, whose hint is
    ``if_interrupted``: what still goes on on the host. ``stopping``: see ``running.run``.
    """

    async def opened() -> Result:
        async with open_console(hosts, profiles) as console:
            return await work(console)

    return running.run(opened(), if_interrupted=if_interrupted, stopping=stopping)


async def settled(console: Eaglemon) -> Snapshot:
    """Wait for the first answers; raises ``HostError`` when no host answered at all."""
    snapshot = await console.settle()
    silent = running.unreachable(snapshot)
    if snapshot.hosts and len(silent) == len(snapshot.hosts):
        hint = snapshot.hosts[0].hint if len(silent) == 1 else ""
        raise HostError("; ".join(silent).removesuffix(f"; {hint}" if hint else ""), hint=hint)
    for line in silent:
        diagnostics.warn(line)
    return snapshot


async def find_server(
    console: Eaglemon, text: str, *, sole: bool = False, needs: Needs = "servers"
) -> ServerView:
    """Ask the hosts for a server; raises ``UsageError``, or ``HostError`` where not all answer.

    ``PID@HOST`` is a server that no console started; it is watched from now on. Where several
    that live are meant it is the newest, which is told; with ``sole`` that raises ``UsageError``.
    ``needs``: see ``Eaglemon.settle``.
    """
    await console.settle(needs=needs)
    if parse_foreign_id(text) is not None:
        return console.find(await console.watch(text))
    found = console.find(text)
    living = [one for one in matching(text, console.snapshot().servers) if not one.state.ended]
    if len(living) > 1:
        names = ", ".join(one.id for one in living)
        if sole:
            raise UsageError(f"{len(living)} servers {text!r} run", hint=f"name one of: {names}")
        diagnostics.talk(f"{len(living)} servers {text!r} run, this is the newest: {found.id}")
    return found


async def with_progress(
    console: Eaglemon, server_id: str, work: Awaitable[Result], *, from_start: bool = False
) -> Result:
    """Await ``work`` while a line on stderr tells each step of the server.

    ``from_start`` also tells the steps that it has already gone through.
    """
    progress = Progress()
    known = console.snapshot().server(server_id)
    if known is not None and not from_start:
        progress.lines(known)

    def tell(snapshot: Snapshot) -> None:
        server = snapshot.server(server_id)
        if server is not None:
            for line in progress.lines(server):
                diagnostics.talk(line)

    async def follow() -> None:
        async for snapshot in console.updates():
            tell(snapshot)

    follower = asyncio.create_task(follow())
    try:
        return await work
    finally:
        follower.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await follower
        tell(console.snapshot())
