"""``eaglemon restart``: stop a server, prove that it is gone, start the same on its port."""

import click

from eaglemon.app.api import Eaglemon
from eaglemon.app.restarting import keep_running
from eaglemon.cli import completing, diagnostics, session
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option
from eaglemon.cli.wait import server_result
from eaglemon.core.views import ServerView


@click.command(name="restart")
@click.argument("server", shell_complete=completing.servers)
@host_option
@click.option("--grace", type=DURATION, help="From TERM to KILL, such as 30s.")
@click.option("--timeout", type=DURATION, help="Until ready; the profile's limit if not given.")
@click.option(
    "--keep",
    is_flag=True,
    help="Do not stop it; start it again whenever it fails, until 3 ends within 10 minutes.",
)
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    server: str,
    hosts: tuple[str, ...],
    grace: float | None,
    timeout: float | None,
    keep: bool,
    as_json: bool,
) -> int:
    """Stop SERVER, wait until its GPU memory is back, start the same again and wait for it.

    Nothing is started where the old one is not shown to be gone. Exits with 0 when the new one is
    ready (with --keep: when someone stopped it), and with 1 otherwise.
    """

    async def work(console: Eaglemon) -> ServerView:
        found = await session.find_server(
            console, server, sole=True, needs="servers" if keep else "gpus"
        )
        if keep:
            return await keep_running(
                console,
                found.id,
                ended=lambda server_id: _ended(console, server_id),
                told=diagnostics.talk,
            )
        again = await session.with_progress(
            console, found.id, console.restart(found.id, grace_s=grace, told=diagnostics.talk)
        )
        diagnostics.talk(f"started {again}")
        waiting = console.wait(again, timeout_s=timeout)
        return await session.with_progress(console, again, waiting, from_start=True)

    view = session.run_on(
        invocation.hosts(hosts),
        invocation.profiles(),
        work,
        if_interrupted="the old server may be stopped; one that was started keeps running: "
        "see eaglemon status, start it with eaglemon launch",
    )
    if keep:
        diagnostics.talk(f"{view.id} was stopped")
    return server_result("restart", view, as_json=as_json) if not keep else 0


async def _ended(console: Eaglemon, server_id: str) -> ServerView:
    """Wait until a server has ended."""
    async for snapshot in console.updates():
        view = snapshot.server(server_id)
        if view is not None and view.state.ended:
            return view
    return console.find(server_id)
