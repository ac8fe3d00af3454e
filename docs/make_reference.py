"""Writes ``docs/keys.md`` and ``docs/commands.md`` from the tables that the program is made of.

Run it from the root of a checkout after a change of either: ``python docs/make_reference.py``.
"""

from pathlib import Path

import click

from eaglemon.cli.main import COMMANDS, LazyGroup, cli
from eaglemon.tui.actions import ACTIONS, shown_key
from eaglemon.tui.screens.help import MOVING

FOLDER = Path(__file__).parent
_MADE = "<!-- made by docs/make_reference.py: change the tables, not this file -->"


def keys_page() -> str:
    """Return the keys of the console as Markdown."""
    lines = ["# Keys of the console", "", _MADE, ""]
    lines += [
        "A key that cannot act now is missing from the last line and, pressed, says why.",
        "The same actions are in the command palette (`:`), and `?` explains them.",
        "",
        "| key | what it does | shown on |",
        "|---|---|---|",
    ]
    for action in ACTIONS:
        where = ", ".join(action.screens) if action.screens else "every screen"
        if not action.important:
            where = "help and palette"
        lines.append(f"| `{_escaped(shown_key(action))}` | {action.title} | {where} |")
    lines += ["", "## Moving", "", "| key | what it does |", "|---|---|"]
    lines += [f"| `{_escaped(keys)}` | {text} |" for keys, text in MOVING]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Return the help of every command as Markdown."""
    lines = ["# Commands", "", _MADE, ""]
    lines += ["| command | what it does |", "|---|---|"]
    lines += [f"| [`{name}`](#eaglemon-{name}) | {text} |" for name, text in COMMANDS.items()]
    with click.Context(cli, info_name="eaglemon", terminal_width=98, **cli.context_settings) as top:
        for name in COMMANDS:
            command = LazyGroup.get_command(cli, top, name)  # type: ignore[arg-type]
            if command is not None:
                lines += _section(command, top, name, 2)
    return "\n".join(lines) + "\n"


def _section(command: click.Command, parent: click.Context, name: str, level: int) -> list[str]:
    with click.Context(command, info_name=name, parent=parent) as context:
        path = context.command_path
        lines = ["", f"{'#' * level} {path}", "", "```text", command.get_help(context), "```"]
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                if found is not None:
                    lines += _section(found, context, inner, level + 1)
    return lines


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    (FOLDER / "keys.md").write_text(keys_page(), encoding="utf-8")
    (FOLDER / "commands.md").write_text(commands_page(), encoding="utf-8")
