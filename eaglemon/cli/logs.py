"""``eaglemon logs``: print or follow a server's log."""

import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext

import click

from eaglemon.app.api import Eaglemon
from eaglemon.cli import completing, output, session
from eaglemon.cli.invocation import Invocation, host_option, json_option
from eaglemon.errors import EXIT_OK

# All escape sequences and control characters but tabs and colours: a log must not be able to
# move the cursor or rename the window of whoever reads it.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-ln-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b(?!\[)"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"
)


@click.command(name="logs")
@click.argument("server", shell_complete=completing.servers)
@host_option
@click.option("--follow", "-f", is_flag=True, help="Go on until the server has ended.")
@click.option("--lines", "-n", type=click.IntRange(min=0), help="Only the last N lines.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    server: str,
    hosts: tuple[str, ...],
    follow: bool,
    lines: int | None,
    as_json: bool,
) -> int:
    """Print the log of SERVER, the whole of it or the last lines.

    With --follow and --json each line becomes one JSON document on a line of its own.
    """

    async def work(console: Eaglemon) -> None:
        found = await session.find_server(console, server, needs="runs")
        about = {"server": found.id, "log_path": found.log_path}
        whole = output.LongDocument("logs", about, "lines") if as_json and not follow else None
        next_offset = None
        with whole or nullcontext():
            async for batch in console.logs(found.id, follow=follow, tail=lines):
                next_offset = batch.next_offset
                if whole is not None:
                    whole.add(batch.lines)
                elif as_json:
                    for line in batch.lines:
                        output.write_json_line("logs", {"server": found.id, "line": line})
                else:
                    output.write_styled(shown(batch.lines))
            if whole is not None:
                whole.write({"next_offset": next_offset})

    session.run_on(invocation.hosts(hosts), invocation.profiles(), work)
    return EXIT_OK


def shown(lines: Sequence[str]) -> list[str]:
    """Return lines as they may be written: as they are, but harmless on a terminal."""
    if not sys.stdout.isatty():
        return list(lines)
    return [_CONTROL.sub("", line) for line in lines]
