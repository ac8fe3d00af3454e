"""``eaglemon hosts``: the hosts that are configured, and ``hosts check``: whether they will do."""

import click

from eaglemon.cli import completing, output
from eaglemon.cli.invocation import Invocation, host_option, json_option
from eaglemon.cli.tables import columns
from eaglemon.errors import EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE


@click.group(name="hosts", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> int:
    """List the configured hosts, without connecting to any.

    Any other name is taken as an SSH name, so a host of ~/.ssh/config needs no entry.
    """
    if ctx.invoked_subcommand is not None:
        return EXIT_OK
    hosts = ctx.obj.hosts(())
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


@command.command(name="check")
@click.argument("names", nargs=-1, metavar="[HOST]...", shell_complete=completing.hosts)
@host_option
@json_option
@click.pass_obj
def check(
    invocation: Invocation, *, names: tuple[str, ...], hosts: tuple[str, ...], as_json: bool
) -> int:
    """Look at what each host must have, and say the fix for what it lacks.

    Exits with 3 when a host cannot be reached and with 1 when something needed is missing.
    """
    asked = invocation.hosts((*names, *hosts))
    # Imported here: the list of hosts needs no network.
    from eaglemon.cli.host_check import examine_all, report_rows  # noqa: PLC0415

    reports = examine_all(asked, invocation.profiles().all())
    if as_json:
        output.write_document("hosts check", {"hosts": reports})
    else:
        output.write_lines(columns(report_rows(reports)))
    if not all(report.reachable for report in reports):
        return EXIT_UNREACHABLE
    return EXIT_OK if all(report.usable for report in reports) else EXIT_FAILED
