"""Runs the offline check for commands, here or in another Python; torch is loaded only then."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from eaglemon.core.draft_views import Examination

Command = TypeVar("Command", bound=Callable[..., Any])


def threads_option(command: Command) -> Command:
    """Add ``--threads``: by default half of the cores, the rest is the server's."""
    return click.option(
        "--threads",
        type=click.IntRange(min=1),
        default=lambda: max(1, (os.cpu_count() or 2) // 2),
        help="CPU threads; half of the cores if unset.",
    )(command)


def examination(
    folder: Path, target: Path, hidden: Path, *, python: str | None, **options: Any
) -> Examination:
    """Run a check here, or in another Python."""
    if python is not None:
        # Each of these loads torch or much else, which --help must not wait for.
        from eaglemon.draft.elsewhere import check_with  # noqa: PLC0415

        places = {"draft": folder, "target": target, "hidden": hidden}
        request = {name: str(path.resolve()) for name, path in places.items()}
        return check_with(python, {**request, **options})
    from eaglemon.draft.examine import examine  # noqa: PLC0415

    return examine(folder, target, hidden, **options)
