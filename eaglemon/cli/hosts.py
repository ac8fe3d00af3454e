"""``eaglemon hosts``: the hosts that are configured."""

import click

from eaglemon.cli import output
from eaglemon.cli.invocation import Invocation, json_option
from eaglemon.cli.tables import columns
from eaglemon.errors import EXIT_OK


@click.command(name="hosts")
@json_option
@click.pass_obj
def command(invocation: Invocation, *, as_json: bool) -> int:
    """List the configured hosts, without connecting to any.

    Any other name is taken as an SSH name, so a host of ~/.ssh/config needs no entry.
    """
    hosts = invocation.hosts(())
    if as_json:
        output.write_document("hosts", {"hosts": hosts})
        return EXIT_OK
    rows = [("HOST", "BY", "ADDRESS", "FROM")]
    for host in hosts:
        address = host.address or (host.name if host.transport == "ssh" else "-")
        user = f"{host.user}@" if host.user else ""
        port = f":{host.port}" if host.port else ""
        rows.append((host.name, host.transport, f"{user}{address}{port}", host.source))
    output.write_lines(columns(rows))
    return EXIT_OK
