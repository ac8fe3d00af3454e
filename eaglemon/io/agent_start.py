"""What is sent to start the agent: the shell command, its source and that of pynvml."""

import functools
import importlib.resources
import importlib.util
import shlex
import zlib
from collections.abc import Mapping
from pathlib import Path

PYTHONS = (
    "python3",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    *(f"python3.{minor}" for minor in range(14, 7, -1)),
    "/opt/conda/bin/python3",
    "python",
)
"""Tried in this order: the first that exists and is new enough."""

# Without quotes, "$" and "!": it stands between the quotes of any shell.
LOADER = (
    "import sys,zlib;f=sys.stdin.buffer;EAGLEMON_SOURCE=f.read(int(f.read(8)));"
    "exec(zlib.decompress(EAGLEMON_SOURCE))"
)
_PROBE = "import sys;print(sys.version_info>=(3,8))"
NO_PYTHON_STATUS = 127


def start_command(*, python: str | None, env: Mapping[str, str] | None) -> str:
    """Return the ``sh`` command that starts the agent with the first Python that will do.

    It ends with ``NO_PYTHON_STATUS`` where there is none. ``-I`` and ``-S`` keep the host's own
    packages and settings out.
    """
    words = " ".join([_quote_path(python)] if python else PYTHONS)
    return (
        f"{_exports(env)}for p in {words}; do"
        f' test "$("$p" -ISc "{_PROBE}" 2>/dev/null)" = True && exec "$p" -ISuc "{LOADER}";'
        f" done; echo no python3 of 3.8 or newer >&2; exit {NO_PYTHON_STATUS}"
    )


def quick_start_command(*, python: str | None, env: Mapping[str, str] | None) -> str:
    """Return the ``sh`` command that starts the agent with the Python that most likely will do.

    It does not try it first, which saves the start of one interpreter. What it ends with where
    that was wrong does not matter: ``start_command`` then finds out.
    """
    word = _quote_path(python) if python else PYTHONS[0]
    loader = f"import sys;sys.version_info>=(3,8)or sys.exit({NO_PYTHON_STATUS});{LOADER}"
    return f'{_exports(env)}exec {word} -ISuc "{loader}"'


def _exports(env: Mapping[str, str] | None) -> str:
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in (env or {}).items())
    return f"export {settings}; " if settings else ""


@functools.cache
def start_bytes() -> bytes:
    """Return what the loader reads from stdin: the agent, then pynvml."""
    agent = importlib.resources.files("eaglemon.agent").joinpath("agent.py").read_bytes()
    return _block(agent) + _block(_pynvml_source())


def _block(source: bytes) -> bytes:
    packed = zlib.compress(source) if source else b""
    return b"%08d" % len(packed) + packed


def _pynvml_source() -> bytes:
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        return b""
    return Path(found.origin).read_bytes()


def _quote_path(path: str) -> str:
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(path)
