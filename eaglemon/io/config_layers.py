"""Where configuration is read from, one over the other: the user's, the project's, ``--config``."""

from collections.abc import Sequence
from pathlib import Path

from eaglemon.core.problems import Problem, did_you_mean
from eaglemon.errors import ConfigError
from eaglemon.io.paths import user_config_folder
from eaglemon.io.tomlfile import TomlFile

PROJECT_FILE = "eaglemon.toml"
PROJECT_FOLDER = ".eaglemon"


def layers_over_packaged(
    *, config: Path | None, project: Path | None, user: Path | None
) -> list[Path]:
    """Return the folders and files to read over the packaged ones, nearest last."""
    here = project or Path()
    found = [user or user_config_folder(), here / PROJECT_FOLDER, here / PROJECT_FILE]
    if config is not None:
        if not config.exists():
            raise ConfigError(f"--config {config}: no such file or folder")
        found.append(config)
    return [layer for layer in found if layer.exists()]


def unknown_tables(file: TomlFile, known: Sequence[str]) -> list[Problem]:
    """Return a problem for each table at the top of ``file`` that is not ``known``."""
    return [
        file.problem((key,), "is not a known table", hint=did_you_mean(key, known))
        for key in file.values
        if key not in known
    ]
