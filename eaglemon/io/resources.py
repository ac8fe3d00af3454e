"""Finds the files that ship beside the code: ``configs`` and ``themes``.

A wheel carries them in ``eaglemon/_data``; an editable install and a checkout do not have that
folder (the build back end copies it elsewhere), so there the checkout's own folders are used.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from eaglemon.errors import ConfigError


def data_folder(kind: str) -> Traversable:
    """Return the shipped folder ``configs`` or ``themes``; raises ``ConfigError`` without it."""
    package = files("eaglemon")
    packaged = package / "_data" / kind
    if packaged.is_dir():
        return packaged
    if isinstance(package, Path):
        checkout = package.parent
        project = checkout / "pyproject.toml"
        if project.is_file() and 'name = "eaglemon"' in project.read_text(encoding="utf-8"):
            folder = checkout / kind
            if folder.is_dir():
                return folder
    raise ConfigError(
        f"the shipped folder {kind!r} is missing from this installation",
        hint="install eaglemon again",
    )
