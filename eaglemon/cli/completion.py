"""``eaglemon completion``: prints what a shell needs to complete commands, options and hosts."""

import click
from click.shell_completion import get_completion_class

from eaglemon.cli import output
from eaglemon.errors import EXIT_OK, UsageError

_WHERE = {
    "bash": "eaglemon completion bash > ~/.local/share/bash-completion/completions/eaglemon",
    "zsh": "eaglemon completion zsh > ~/.zfunc/_eaglemon   # with ~/.zfunc in fpath",
    "fish": "eaglemon completion fish > ~/.config/fish/completions/eaglemon.fish",
}
VARIABLE = "_EAGLEMON_COMPLETE"


@click.command(name="completion", epilog="  ".join(_WHERE.values()))
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def command(ctx: click.Context, *, shell: str) -> int:
    """Print the completion script of SHELL."""
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"no completion for {shell}", hint=f"known: {', '.join(_WHERE)}")
    group = ctx.find_root().command
    script = kind(group, {}, "eaglemon", VARIABLE).source()
    # click's own lets a description end at its first comma.
    script = script.replace('string split "," $completion', 'string split -m 1 "," $completion')
    output.write_lines([f"# {_WHERE[shell]}", *script.splitlines()])
    return EXIT_OK
