"""``eaglemon hosts``: the hosts that are configured, and ``hosts check``: whether they will do."""

import asyncio
from collections.abc import Sequence
from functools import partial

import click

from eaglemon.app.requirements import examine
from eaglemon.cli import diagnostics, output
from eaglemon.cli.invocation import Invocation, host_option, json_option
from eaglemon.cli.questions import terminal_asker
from eaglemon.cli.tables import columns
from eaglemon.core.host_report import HostReport, Requirement
from eaglemon.core.hosts import HostSpec
from eaglemon.core.profiles import Profile
from eaglemon.errors import EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE
from eaglemon.io.connect import transport_to


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
@click.argument("names", nargs=-1, metavar="[HOST]...")
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
    with diagnostics.library_log():
        reports = asyncio.run(_examine_all(asked, invocation.profiles().all()))
    if as_json:
        output.write_document("hosts check", {"hosts": reports})
    else:
        output.write_lines(_lines(reports))
    if not all(report.reachable for report in reports):
        return EXIT_UNREACHABLE
    return EXIT_OK if all(report.usable for report in reports) else EXIT_FAILED


async def _examine_all(
    hosts: Sequence[HostSpec], profiles: Sequence[Profile]
) -> Sequence[HostReport]:
    # Published pairs say nothing about where an engine is installed.
    own = [one for one in profiles if not one.reference]
    connect = partial(transport_to, ask=terminal_asker())
    return await asyncio.gather(*(examine(one, own, connect=connect) for one in hosts))


def _lines(reports: Sequence[HostReport]) -> list[str]:
    rows = [("HOST", "REQUIREMENT", "", "FOUND")]
    for report in reports:
        rows += [(report.host, one.name, _mark(one), _said(one)) for one in report.requirements]
    return columns(rows)


def _mark(one: Requirement) -> str:
    if one.met is None:
        return "-"
    if one.met:
        return "ok"
    return "FAILED" if one.needed else "missing"


def _said(one: Requirement) -> str:
    return f"{one.detail}; {one.fix}" if one.fix else one.detail
