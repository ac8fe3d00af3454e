"""Folders of this user on this computer: configuration and state, where the platform has them."""

from pathlib import Path

import platformdirs


def user_config_folder() -> Path:
    """Return the folder of ``hosts.toml`` and ``profiles/`` (``$XDG_CONFIG_HOME/eaglemon``)."""
    return platformdirs.user_config_path("eaglemon", appauthor=False)


def user_state_folder() -> Path:
    """Return the folder of logs and other state (``$XDG_STATE_HOME/eaglemon``)."""
    return platformdirs.user_state_path("eaglemon", appauthor=False)


def log_file() -> Path:
    """Return the file that tracebacks and library logs go to."""
    return user_state_folder() / "eaglemon.log"
