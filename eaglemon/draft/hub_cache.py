"""Where a model lies that a profile names by its repository: the cache of huggingface_hub.

The layout is ``models--OWNER--NAME/refs/main`` with the commit, and ``snapshots/COMMIT/``.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def is_repository(place: str) -> bool:
    """Tell whether ``place`` may name a repository: ``OWNER/NAME``."""
    return _REPOSITORY.fullmatch(place) is not None


def located(place: Path, env: Mapping[str, str]) -> Path:
    """Return the folder of a model: ``place`` itself, or what is cached of that repository.

    ``env`` is what the one who downloaded it had besides the environment here. Where nothing is
    cached, ``place``.
    """
    if place.exists() or not is_repository(place.as_posix()):
        return place
    kept = _cache({**os.environ, **env}) / f"models--{place.as_posix().replace('/', '--')}"
    try:
        commit = (kept / "refs" / "main").read_text(encoding="ascii").strip()
    except OSError:
        return place
    snapshot = kept / "snapshots" / commit
    return snapshot if snapshot.is_dir() else place


def _cache(env: Mapping[str, str]) -> Path:
    if "HF_HUB_CACHE" in env:
        return Path(env["HF_HUB_CACHE"]).expanduser()
    home = env.get("HF_HOME", "~/.cache/huggingface")
    return Path(home).expanduser() / "hub"
