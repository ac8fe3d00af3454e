"""What a URL on the command line needs besides: an API key and whose certificates to believe."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from eaglemon.cli import diagnostics
from eaglemon.core.server_url import Trust
from eaglemon.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


def url_options(command: Command) -> Command:
    """Add ``--api-key-env``, ``--ca`` and ``--insecure``."""
    for add in (
        click.option("--insecure", is_flag=True, help="Take any certificate of an https URL."),
        click.option(
            "--ca",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Authorities that an https URL's certificate may be from, in place of the usual "
            "ones.",
        ),
        click.option("--api-key-env", metavar="NAME", help="Variable with the API key of a URL."),
    ):
        command = add(command)
    return command


def api_key_in(variable: str | None) -> str | None:
    """Return the API key of the variable; raises ``UsageError`` where it is not set."""
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"--api-key-env {variable}: the variable is not set")
    return key


def trust_of(server: str, ca: Path | None, *, insecure: bool) -> Trust:
    """Return whose certificates to believe; raises ``UsageError`` for what does not fit."""
    if ca is None and not insecure:
        return Trust()
    if not server.startswith("https://"):
        raise UsageError("--ca and --insecure are for https URLs")
    if ca is not None and insecure:
        raise UsageError("--ca checks certificates and --insecure does not", hint="give one")
    if insecure:
        diagnostics.warn(
            f"--insecure: nobody checks that {server} is that server; whoever is in between can "
            "read the API key and the prompts, and change the answers"
        )
        return Trust(verify=False)
    from eaglemon.io.tls import read_authorities  # noqa: PLC0415 -- loads ssl

    return Trust(ca_pem=read_authorities(ca)) if ca is not None else Trust()
