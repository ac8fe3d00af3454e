"""Files of this computer that the console may read and have edited: profiles and drafts."""

import re
from collections.abc import Callable
from pathlib import Path

from eaglemon.core.draft_views import InspectView
from eaglemon.errors import ConfigError
from eaglemon.io.config import ProfileStore

_LINE = re.compile(r":\d+$")


class ConfigFiles:
    """Implements ``eaglemon.app.api.LocalFiles`` for the profiles of one console."""

    def __init__(self, profiles: ProfileStore, load: Callable[[], ProfileStore]) -> None:
        self._profiles = profiles
        self._load = load

    def profile_file(self, source: str) -> Path | None:
        """Return the file that ``source`` names, without its line; packaged ones are not edited."""
        path = Path(_LINE.sub("", source))
        return path if path.is_file() else None

    def reload(self) -> None:
        """Read the profiles again."""
        self._profiles.take(self._load())

    def inspect_draft(self, folder: str, target: str) -> InspectView:
        """Return what a draft's files say; ``target`` is left out where it is not here."""
        # Imported here because few look at a draft, and the first picture would wait for it.
        from eaglemon.draft.inspect import inspect  # noqa: PLC0415

        path = Path(folder)
        if not path.is_dir():
            raise ConfigError(
                f"{folder} is no folder of this computer",
                hint=f"on its host: eaglemon draft inspect {folder} --target {target}",
            )
        there = Path(target)
        return inspect(path, target=there if (there / "config.json").is_file() else None)
