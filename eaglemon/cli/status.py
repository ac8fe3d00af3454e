"""``eaglemon status``: what holds the GPUs, and how the servers are."""

import click

from eaglemon.app.api import Eaglemon
from eaglemon.cli import completing, diagnostics, output, running, session
from eaglemon.cli.invocation import DURATION, Invocation, host_option, json_option
from eaglemon.cli.tables import status_lines
from eaglemon.cli.watching import watch
from eaglemon.core.hosts import of_host
from eaglemon.core.views import ServerState, Snapshot
from eaglemon.errors import EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE, UsageError


@click.command(name="status")
@click.argument("names", nargs=-1, metavar="[HOST]...", shell_complete=completing.hosts)
@host_option
@click.option(
    "--watch",
    "watching",
    is_flag=True,
    help="Go on, a line for each change: for screen readers and plain terminals.",
)
@click.option("--every", type=DURATION, default="60s", help="With --watch: figures this often.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    names: tuple[str, ...],
    hosts: tuple[str, ...],
    watching: bool,
    every: float,
    as_json: bool,
) -> int:
    """Show hosts, GPUs, who uses them, and servers.

    Exits with 3 when a host cannot be reached and with 1 when a living server is unhealthy.
    """

    async def work(console: Eaglemon) -> Snapshot:
        return await console.settle()

    asked = invocation.hosts((*names, *hosts))
    if watching:
        if as_json:
            raise UsageError("--watch writes lines", hint="for JSON, ask again and again")
        session.run_on(asked, invocation.profiles(), lambda console: watch(console, every))
        return EXIT_OK
    snapshot = session.run_on(asked, invocation.profiles(), work)
    if as_json:
        content = {"hosts": snapshot.hosts, "servers": snapshot.servers, "at": snapshot.at}
        output.write_document("status", content)
    else:
        output.write_lines(status_lines(snapshot))
    for host in snapshot.hosts:
        for run in host.damaged:
            diagnostics.warn(of_host(host.name, str(run)))
    silent = running.unreachable(snapshot)
    for line in silent:
        diagnostics.fail(line)
    if silent:
        return EXIT_UNREACHABLE
    ill = any(server.state is ServerState.UNHEALTHY for server in snapshot.servers)
    return EXIT_FAILED if ill else EXIT_OK
