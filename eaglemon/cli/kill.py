"""``eaglemon kill``: stop a server and prove that its GPU memory is back."""

import sys

import click

from eaglemon.app.api import Eaglemon
from eaglemon.cli import completing, diagnostics, output, session
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option
from eaglemon.core.foreign import ForeignServer, ForeignStop, parse_foreign_id
from eaglemon.core.nvidia_smi import is_no_driver
from eaglemon.core.profiles import Limits
from eaglemon.core.release import GONE_UNPROVEN, gone_unseen
from eaglemon.core.units import count, index_ranges, memory, plural
from eaglemon.core.views import ServerView
from eaglemon.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UsageError

_SHOWN_PIDS = 8


@click.command(name="kill")
@click.argument("server", shell_complete=completing.servers)
@host_option
@click.option("--grace", type=DURATION, help="From TERM to KILL, such as 30s.")
@click.option("--foreign", is_flag=True, help="SERVER is PID@HOST, which no console started.")
@click.option("--yes", "-y", "confirmed", is_flag=True, help="Do not ask on a terminal.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    server: str,
    hosts: tuple[str, ...],
    grace: float | None,
    foreign: bool,
    confirmed: bool,
    as_json: bool,
) -> int:
    """Stop SERVER: TERM, grace, KILL of what is left, then wait for the GPU memory.

    Asks first where there is a terminal. Exits with 0 when no process is left and the memory is
    back (or the host has no driver that could tell, which is said), and with 1 otherwise. A server
    that no console started needs --foreign and its PID@HOST, as eaglemon foreign lists it; without
    a terminal to ask on it needs --yes too.
    """
    if foreign:
        return _kill_foreign(invocation, server, hosts, grace, confirmed=confirmed, as_json=as_json)
    if parse_foreign_id(server) is not None:
        raise UsageError(f"{server} was started by somebody else", hint="add --foreign to end it")

    async def find(console: Eaglemon) -> ServerView:
        return await session.find_server(console, server, sole=True)

    async def work(console: Eaglemon) -> tuple[ServerView, bool]:
        # Which GPUs it holds must be known: their memory is watched. How it is need not.
        found = await session.find_server(console, server, sole=True, needs="gpus")
        if found.state.ended and not found.pids:
            return found, True
        stopping = console.stop(found.id, grace_s=grace, wait=True)
        return await session.with_progress(console, found.id, stopping), False

    asked, profiles = invocation.hosts(hosts), invocation.profiles()
    if not confirmed and sys.stdin.isatty():
        # The question waits for a person, so the connection is not held open meanwhile.
        found = session.run_on(asked, profiles, find)
        if (found.pids or not found.state.ended) and not _confirm(found):
            diagnostics.fail("not confirmed, nothing was stopped")
            return EXIT_INTERRUPTED
        server = found.id
    view, was_over = session.run_on(
        asked, profiles, work, if_interrupted="a stop that was begun goes on on the host"
    )
    if as_json:
        output.write_document("kill", {"server": view})
    else:
        output.write_lines([view.id])
    return _result(view, was_over=was_over)


def _kill_foreign(
    invocation: Invocation,
    server: str,
    hosts: tuple[str, ...],
    grace: float | None,
    *,
    confirmed: bool,
    as_json: bool,
) -> int:
    parts = parse_foreign_id(server)
    if parts is None:
        raise UsageError(f"--foreign needs PID@HOST, not {server!r}", hint="eaglemon foreign")
    asked = invocation.hosts(hosts or (parts[1],))

    async def look(console: Eaglemon) -> ForeignServer | None:
        await session.settled(console)
        found = await console.foreign(parts[1])
        return next((one for one in found if one.pid == parts[0]), None)

    async def work(console: Eaglemon) -> ForeignStop:
        await session.settled(console)
        grace_s = Limits().stop_grace_s if grace is None else grace
        told = 0

        def tell(stop: ForeignStop) -> None:
            nonlocal told
            for step in stop.steps[told:]:
                diagnostics.talk(step)
            told = len(stop.steps)

        return await console.stop_foreign(server, grace_s=grace_s, told=tell)

    profiles = invocation.profiles()
    if not confirmed:
        if not sys.stdin.isatty():
            raise UsageError("nobody can be asked here", hint=f"add --yes to end {server}")
        found = session.run_on(asked, profiles, look)
        named = found and click.prompt(f"{found}\ntype its PID to end it", err=True)
        if found is None or str(named).strip() != str(found.pid):
            diagnostics.fail("not confirmed, nothing was stopped")
            return EXIT_INTERRUPTED
    stop = session.run_on(asked, profiles, work)
    if as_json:
        output.write_document("kill", {"foreign": stop})
    else:
        output.write_lines([stop.server.id])
    if stop.gone and (stop.memory_back or is_no_driver(stop.memory_unseen)):
        return EXIT_OK
    if stop.gone and stop.memory_unseen:
        diagnostics.fail(f"{server}: {gone_unseen(stop.memory_unseen)}")
        return EXIT_FAILED
    left = ", ".join(f"PID {pid}" for pid in stop.left) or "its GPU memory"
    diagnostics.fail(f"{server}: not shown to be gone: {left}")
    return EXIT_FAILED


def _confirm(server: ServerView) -> bool:
    pids = ", ".join(str(pid) for pid in server.pids[:_SHOWN_PIDS])
    more = len(server.pids) - _SHOWN_PIDS
    rest = f" and {more} more" if more > 0 else ""
    gpus = index_ranges(server.gpu_indexes) or "-"
    running = server.load.running if server.load is not None else None
    question = (
        f"{server.id} on {server.host}: {server.state}, profile {server.profile}\n"
        f"  {plural(len(server.pids), 'process')}: {pids}{rest}\n"
        f"  GPUs {gpus}, {memory(server.memory_used_bytes)} to be freed, "
        f"requests in flight: {count(running)}\n"
        f"stop {server.id}?"
    )
    return click.confirm(question, err=True)


def _result(server: ServerView, *, was_over: bool) -> int:
    stop = server.stop
    if stop is None or was_over:
        return _without_stop(server, was_over=was_over)
    if stop.memory_unseen:
        said = gone_unseen(stop.memory_unseen).removeprefix("processes are ")
        tell = diagnostics.talk if stop.proven else diagnostics.fail
        tell(f"{server.id} is {said}")
        return EXIT_OK if stop.proven else EXIT_FAILED
    if stop.proven and stop.memory_to_release_bytes is None:
        diagnostics.talk(f"{server.id} is gone; it held no GPU memory")
        return EXIT_OK
    if stop.proven:
        diagnostics.talk(f"{server.id} is gone and its GPU memory is back")
        return EXIT_OK
    left = []
    if stop.processes_left is None or stop.processes_left:
        unknown = stop.processes_left is None
        left.append("its processes" if unknown else plural(stop.processes_left or 0, "process"))
    if stop.memory_to_release_bytes is None:
        left.append("its GPU memory is not known")
    elif stop.memory_to_release_bytes > 0:
        left.append(f"{memory(stop.memory_to_release_bytes)} of GPU memory")
    if stop.processes_left == 0 and stop.memory_to_release_bytes is None:
        diagnostics.fail(f"{server.id}: {GONE_UNPROVEN}")
        return EXIT_FAILED
    diagnostics.fail(f"{server.id}: not shown to be gone: {', '.join(left) or server.detail}")
    return EXIT_FAILED


def _without_stop(server: ServerView, *, was_over: bool) -> int:
    """Tell of a server that no stop is known of: it had ended, or could not be stopped."""
    if was_over or (server.state.ended and not server.pids):
        diagnostics.talk(f"{server.id} had already ended")
        return EXIT_OK
    diagnostics.fail(f"{server.id} was not stopped: {server.detail or server.state}")
    return EXIT_FAILED
