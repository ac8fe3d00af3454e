"""``eaglemon foreign``: servers on a host that somebody started by hand."""

import click

from eaglemon.app.api import Eaglemon
from eaglemon.cli import diagnostics, output, running, session
from eaglemon.cli.invocation import Invocation, host_option, json_option
from eaglemon.cli.tables import Row, columns
from eaglemon.core.foreign import ForeignServer
from eaglemon.core.hosts import LinkState
from eaglemon.core.units import index_ranges, memory
from eaglemon.errors import EXIT_OK, EXIT_UNREACHABLE


@click.command(name="foreign")
@click.argument("names", nargs=-1, metavar="[HOST]...")
@host_option
@json_option
@click.pass_obj
def command(
    invocation: Invocation, *, names: tuple[str, ...], hosts: tuple[str, ...], as_json: bool
) -> int:
    """List servers that no console started, with the flags of their command lines.

    Each has an id PID@HOST for wait and for kill --foreign, and a URL for probe. Nothing is asked
    of them. Exits with 3 when a host cannot be reached.
    """

    async def work(console: Eaglemon) -> tuple[list[ForeignServer], list[str]]:
        snapshot = await session.settled(console)
        found: list[ForeignServer] = []
        for host in snapshot.hosts:
            if host.state in {LinkState.UP, LinkState.STALE, LinkState.DEGRADED}:
                found += await console.foreign(host.name)
        return found, running.unreachable(snapshot)

    asked = invocation.hosts((*names, *hosts))
    found, silent = session.run_on(asked, invocation.profiles(), work)
    if as_json:
        content = [{"id": one.id, "url": one.url, "server": one} for one in found]
        output.write_document("foreign", {"foreign": content})
    elif found:
        rows: list[Row] = [("ID", "ENGINE", "USER", "MODEL", "DRAFT", "URL", "GPUS", "MEMORY")]
        rows += [_row(one) for one in found]
        output.write_lines(columns(rows))
    else:
        diagnostics.talk("no server was found that no console started")
    return EXIT_UNREACHABLE if silent else EXIT_OK


def _row(server: ForeignServer) -> Row:
    return (
        server.id,
        server.profile.engine,
        server.user + (f" in {server.container}" if server.container else ""),
        server.profile.model,
        server.profile.draft or "-",
        server.url,
        index_ranges(server.gpu_indexes) or "-",
        memory(server.memory_used_bytes),
    )
