"""``eaglemon replay``: shows a recorded console again."""

import asyncio
from pathlib import Path

import click

from eaglemon.app.recording import Replay, read
from eaglemon.cli import tui
from eaglemon.errors import EXIT_OK


@click.command(name="replay")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--speed", type=click.FloatRange(min=0.01), default=1.0, help="2 is twice as fast.")
@tui.theme_option
@tui.ascii_option
def command(*, file: Path, speed: float, theme: str | None, ascii_only: bool) -> int:
    """Show FILE, made with eaglemon tui --record, as it was seen; nothing can be changed in it."""
    replay = Replay(read(file), speed=speed)
    tui.require_terminal(otherwise="a terminal with a cursor, or read its JSON lines")
    look = tui.Look(theme=theme, ascii_only=ascii_only or not tui.speaks_utf8())
    asyncio.run(tui.show_recording(replay, look, title=f"replay {file.name}"))
    return EXIT_OK
