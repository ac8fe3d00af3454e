"""``eaglemon tui``: opens the terminal console; the only module that imports it."""

import asyncio
import sys
from collections.abc import Sequence

import click

from eaglemon.cli import diagnostics, session
from eaglemon.cli.invocation import Invocation, host_option
from eaglemon.core.hosts import HostQuestion, HostSpec
from eaglemon.errors import EXIT_OK, UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.io.resources import data_folder
from eaglemon.tui.app import ConsoleApp
from eaglemon.tui.screens.question import ask_on


@click.command(name="tui")
@click.argument("names", nargs=-1, metavar="[HOST]...")
@host_option
@click.pass_obj
def command(
    invocation: Invocation, *, names: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
) -> int:
    """Open the terminal console on hosts, or on all configured ones."""
    if not has_terminal():
        raise UsageError("the console needs a terminal", hint="use eaglemon status --json")
    asked = invocation.hosts((*names, *hosts))
    with diagnostics.library_log():
        asyncio.run(show_console(asked, invocation.profiles()))
    return EXIT_OK


def has_terminal() -> bool:
    """Tell whether keys can be read and the screen is seen (the toolkit draws on stderr)."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


async def show_console(hosts: Sequence[HostSpec], profiles: ProfileStore) -> None:
    """Run the terminal console on ``hosts`` until it is left; servers keep running."""
    shown: asyncio.Future[ConsoleApp] = asyncio.get_running_loop().create_future()

    async def ask(question: HostQuestion) -> str | None:
        return await ask_on(await asyncio.shield(shown), question)

    async with session.open_console(hosts, profiles, ask=ask) as console:
        app = ConsoleApp(console, themes=themes(), read_only=session.is_read_only())
        shown.set_result(app)
        await app.run_async()


def themes() -> dict[str, str]:
    """Return the text of each shipped theme, by the name of its file."""
    entries = data_folder("themes").iterdir()
    return {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in entries
        if entry.name.endswith(".toml")
    }
