"""The ``eaglemon`` command: finds the subcommand and turns every failure into one line.

Subcommands are imported when they are called, so that ``eaglemon --help`` loads neither the
network nor the terminal console.
"""

import contextlib
import difflib
import errno
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from eaglemon import __version__
from eaglemon.cli import diagnostics, output
from eaglemon.cli.read_only import READ_ONLY
from eaglemon.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    EaglemonError,
)

COMMANDS = {
    "tui": "Open the terminal console on hosts (the default).",
    "status": "Show hosts, GPUs, who uses them, and servers.",
    "gpus": "Show the GPUs of hosts and who holds them, once or again and again.",
    "launch": "Start a server of a profile on a host.",
    "wait": "Wait until a server is ready or has ended.",
    "probe": "Measure a server: tok/s, time to first token, accept length.",
    "ab": "Compare ways to serve: restart, measure, say which is faster.",
    "sweep": "Find the best speculation settings of a profile.",
    "runs": "List, show, compare, export and prune measured experiments.",
    "report": "Write the report of an experiment.",
    "logs": "Print or follow the log of a server.",
    "diagnose": "Say what a server's log means, and the line that decides.",
    "draft": "Find out why a draft is slow, and fix it.",
    "kill": "Stop a server and wait until its GPU memory is back.",
    "restart": "Stop a server, prove it gone, start the same again.",
    "foreign": "List servers on a host that no console started.",
    "profiles": "List, show, check and import profiles.",
    "hosts": "List the configured hosts, or check what they lack.",
    "init": "Write a commented configuration to start from.",
    "serve": "Show the console in a browser.",
    "replay": "Show a recorded console again.",
    "completion": "Print the completion script of a shell.",
    "demo": "Try everything on a simulated GPU host.",
}
"""Subcommands in the order of a session; each is ``command`` of the module of its name."""
CHANGING = frozenset({"launch", "restart", "kill", "ab", "sweep"})
"""Those that start or end servers: gone with ``--read-only``."""


class LazyGroup(click.Group):
    """Imports a subcommand when it is used; other first words are names of hosts."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"eaglemon.cli.{cmd_name}")
        command = module.command
        if not isinstance(command, click.Command):
            raise TypeError(f"eaglemon.cli.{cmd_name}.command is no command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete subcommands without importing them, then names of hosts."""
        # Imported here because only completion needs it.
        from eaglemon.io.ssh_names import ssh_names  # noqa: PLC0415

        found = [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        if incomplete.startswith("-"):
            found += click.Command.shell_complete(self, ctx, incomplete)
        found += [CompletionItem(n) for n in ssh_names() if incomplete and n.startswith(incomplete)]
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            gone = CHANGING if ctx.meta.get(READ_ONLY) else frozenset[str]()
            formatter.write_dl([(n, text) for n, text in COMMANDS.items() if n not in gone])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take a first word that is no subcommand as a host to open the console on."""
        word = args[0]
        if word in CHANGING and ctx.meta.get(READ_ONLY):
            raise click.UsageError(f"{word} changes servers, and this is --read-only")
        if word in COMMANDS:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.75)
        if near and all(host.name != word for host in ctx.obj.hosts(())):
            raise click.UsageError(
                f"no command {word!r}; did you mean {near[0]!r}? (for a host of this name: "
                f"eaglemon tui {word})"
            )
        return "tui", self.get_command(ctx, "tui"), args


def _keep_config(ctx: click.Context, _: click.Parameter, config: Path | None) -> None:
    # Imported here because --help needs no configuration.
    from eaglemon.cli.invocation import Invocation  # noqa: PLC0415

    ctx.obj = Invocation(config=config)


def _keep_read_only(ctx: click.Context, _: click.Parameter, read_only: bool) -> None:  # noqa: FBT001
    ctx.meta[READ_ONLY] = read_only


def _keep_accept_new(ctx: click.Context, _: click.Parameter, accept_new: bool) -> None:  # noqa: FBT001
    ctx.obj.accept_new = accept_new


@click.command(
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="[HOST...] | COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Exit codes: 0 ok, 1 the thing asked about failed, 2 usage or configuration, "
        "3 host unreachable, 4 time-out, 130 interrupted."
    ),
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    callback=_keep_config,
    expose_value=False,
    is_eager=True,
    metavar="PATH",
    help="A file like eaglemon.toml, or a folder with hosts.toml and profiles/, over all others.",
)
@click.option(
    "--read-only",
    is_flag=True,
    envvar="EAGLEMON_READ_ONLY",
    callback=_keep_read_only,
    expose_value=False,
    is_eager=True,
    help="Take away everything that starts or ends servers, in the console too.",
)
@click.option(
    "--accept-new",
    is_flag=True,
    callback=_keep_accept_new,
    expose_value=False,
    help="Write the keys of hosts never seen before to known_hosts; changed ones are refused.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Launch, watch, measure and kill EAGLE-3 speculative-decoding servers on GPU hosts.

    Without a command, opens the terminal console on the named hosts, or on all configured ones.
    """
    if ctx.invoked_subcommand is None:
        command = LazyGroup.get_command(_group(ctx), ctx, "tui")
        if command is not None:
            ctx.invoke(command)


def main() -> None:
    """Run the command line of this process and exit."""
    output.open_closed_streams()
    code = run(sys.argv[1:])
    # All is closed by now, and taking the interpreter apart takes longer than closing it all did.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; a failure is told in one line on stderr."""
    try:
        code = cli.main(args=list(arguments), prog_name="eaglemon", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except output.OutputClosedError:
        return EXIT_FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last resort for all
        return _failure(arguments, error)
    return code if isinstance(code, int) else EXIT_OK


def _group(ctx: click.Context) -> LazyGroup:
    if not isinstance(ctx.command, LazyGroup):
        raise TypeError("the context is not that of the command line")
    return ctx.command


def _click_words(error: click.ClickException) -> str:
    text = error.format_message()
    text = f"{text[:1].lower()}{text[1:]}".rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{text}; see {context.command_path} --help" if context else text


def _failure(arguments: Sequence[str], error: BaseException) -> int:
    if isinstance(error, BaseExceptionGroup):
        found = list(diagnostics.leaves(error))
        if all(isinstance(leaf, EaglemonError) for leaf in found):
            error = found[0]
    match error:
        case click.Abort() | KeyboardInterrupt():
            return _failed(arguments, "interrupted", EXIT_INTERRUPTED)
        case click.ClickException():
            return _failed(arguments, _click_words(error), EXIT_USAGE)
        case EaglemonError():
            return _failed(arguments, str(error), error.exit_code, error)
        case OSError(errno=errno.ENOSPC | errno.EBADF, filename=None):
            # The help is written by click itself.
            return _failed(arguments, f"cannot write to stdout: {error.strerror}", EXIT_FAILED)
    first = str(error).partition("\n")[0]
    where = diagnostics.record_traceback(error)
    text = f"unexpected {type(error).__name__}: {first}; this is a mistake in eaglemon, {where}"
    return _failed(arguments, text, EXIT_FAILED)


def _failed(
    arguments: Sequence[str], text: str, code: int, error: EaglemonError | None = None
) -> int:
    diagnostics.fail(text)
    if "--json" in arguments:
        name = next((word for word in arguments if word in COMMANDS), "tui")
        content = {
            "message": error.message if error else text,
            "hint": error.hint if error else "",
            "kind": type(error).__name__ if error else "",
            "exit_code": code,
        }
        with contextlib.suppress(output.OutputClosedError, output.OutputFailedError):
            output.write_json_line(name, {"error": content})
    return code
