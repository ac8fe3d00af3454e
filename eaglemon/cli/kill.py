"""``eaglemon kill``: stop a server and prove that its GPU memory is back."""

import sys

import click

from eaglemon.app.api import Eaglemon
from eaglemon.cli import diagnostics, output, session
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option
from eaglemon.core.units import memory, plural
from eaglemon.core.views import ServerView
from eaglemon.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK


@click.command(name="kill")
@click.argument("server")
@host_option
@click.option("--grace", type=DURATION, help="From TERM to KILL, such as 30s.")
@click.option("--yes", "-y", "confirmed", is_flag=True, help="Do not ask on a terminal.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    server: str,
    hosts: tuple[str, ...],
    grace: float | None,
    confirmed: bool,
    as_json: bool,
) -> int:
    """Stop SERVER: TERM, grace, KILL of what is left, then wait for the GPU memory.

    Asks first where there is a terminal. Exits with 0 when no process is left and the memory is
    back, and with 1 otherwise.
    """

    async def find(console: Eaglemon) -> ServerView:
        return await session.find_server(console, server)

    async def work(console: Eaglemon) -> ServerView:
        found = await session.find_server(console, server)
        if found.state.ended:
            return found
        return await session.with_progress(
            console, found.id, console.stop(found.id, grace_s=grace, wait=True)
        )

    asked, profiles = invocation.hosts(hosts), invocation.profiles()
    if not confirmed and sys.stdin.isatty():
        # The question waits for a person, so the connection is not held open meanwhile.
        found = session.run_on(asked, profiles, find)
        if not found.state.ended and not _confirm(found):
            diagnostics.fail("not confirmed, nothing was stopped")
            return EXIT_INTERRUPTED
        server = found.id
    view = session.run_on(
        asked, profiles, work, if_interrupted="a stop that was begun goes on on the host"
    )
    if as_json:
        output.write_document("kill", {"server": view})
    else:
        output.write_lines([view.id])
    return _result(view)


def _confirm(server: ServerView) -> bool:
    held = memory(server.memory_used_bytes)
    question = (
        f"stop {server.id} on {server.host} ({server.state}, "
        f"{plural(len(server.pids), 'process')}, {held} of GPU memory)?"
    )
    return click.confirm(question, err=True)


def _result(server: ServerView) -> int:
    stop = server.stop
    if stop is None:
        diagnostics.talk(f"{server.id} had already ended")
        return EXIT_OK
    if stop.proven:
        diagnostics.talk(f"{server.id} is gone and its GPU memory is back")
        return EXIT_OK
    left = []
    if stop.processes_left is None or stop.processes_left:
        unknown = stop.processes_left is None
        left.append("its processes" if unknown else plural(stop.processes_left or 0, "process"))
    if stop.memory_to_release_bytes is None or stop.memory_to_release_bytes > 0:
        left.append(f"{memory(stop.memory_to_release_bytes)} of GPU memory")
    diagnostics.fail(f"{server.id}: not shown to be gone: {', '.join(left) or server.detail}")
    return EXIT_FAILED
