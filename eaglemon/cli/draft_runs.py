"""Runs the offline check for commands, here or in another Python; torch is loaded only then."""

from pathlib import Path
from typing import Any

from eaglemon.core.draft_views import Examination


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
