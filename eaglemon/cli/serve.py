"""``eaglemon serve``: the console in a browser."""

import os
import sys
from pathlib import Path

import click

from eaglemon.cli import completing, diagnostics, output
from eaglemon.cli.invocation import Invocation, host_option
from eaglemon.cli.read_only import is_read_only
from eaglemon.errors import EXIT_OK, UsageError
from eaglemon.io.web import LOOPBACK, new_token, serve

_TOKEN = "EAGLEMON_SERVE_TOKEN"  # noqa: S105 (the name of a variable)


@click.command(name="serve")
@click.argument("names", nargs=-1, metavar="[HOST]...", shell_complete=completing.hosts)
@host_option
@click.option("--port", type=click.IntRange(1, 65535), default=8765, show_default=True)
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--beyond-loopback",
    is_flag=True,
    help="Listen at another address too; traffic is not encrypted, so put TLS before it.",
)
@click.pass_obj
def command(
    invocation: Invocation,
    *,
    names: tuple[str, ...],
    hosts: tuple[str, ...],
    port: int,
    address: str,
    beyond_loopback: bool,
) -> int:
    """Show the console in a browser, each page with a console of its own.

    Prints an address with a token, which is asked of every request; EAGLEMON_SERVE_TOKEN sets it.
    """
    if address not in LOOPBACK and not beyond_loopback:
        raise UsageError(
            f"{address} is not this computer's loopback",
            hint="add --beyond-loopback if others shall reach it",
        )
    # Wrong names are told here, not on a page.
    invocation.hosts((*names, *hosts))
    token = os.environ.get(_TOKEN) or new_token()
    argv = [sys.executable, "-m", "eaglemon"]
    if invocation.config is not None:
        argv += ["--config", str(Path(invocation.config).absolute())]
    if is_read_only():
        argv.append("--read-only")
    argv += ["tui", *names, *(word for host in hosts for word in ("--host", host))]

    def announce() -> None:
        output.write_lines([f"http://{address}:{port}/?token={token}"])
        diagnostics.talk("ctrl+c ends it; servers keep running")

    serve(argv, address=address, port=port, token=token, title="eaglemon", announce=announce)
    return EXIT_OK
