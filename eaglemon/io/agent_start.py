"""What is sent to start the agent: the shell command, its source and that of pynvml."""

import functools
import importlib.resources
import importlib.util
import shlex
import zlib
from collections.abc import Mapping
from pathlib import Path

from eaglemon.io.local import LocalTransport
from eaglemon.io.transport import Transport

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
# The same on this very computer, where the files are at hand: what Python keeps of them compiled
# saves a third of the start. The source is read all the same, for the processes that outlive it.
_LOADER_HERE = (
    "import sys,zlib;from importlib.machinery import SourceFileLoader as L;"
    "a,EAGLEMON_PYNVML_FILE=sys.argv[1:3];del sys.argv[1:];f=sys.stdin.buffer;"
    "EAGLEMON_SOURCE=f.read(int(f.read(8)));exec(L(str(),a).get_code(str()))"
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


def quick_start_command(*, python: str | None, env: Mapping[str, str] | None, to: Transport) -> str:
    """Return the ``sh`` command that starts the agent with the Python that most likely will do.

    It does not try it first, which saves the start of one interpreter; where ``to`` is this very
    computer it takes the agent and pynvml from their files. What it ends with where that was wrong
    does not matter: ``start_command`` then finds out.
    """
    word = _quote_path(python) if python else PYTHONS[0]
    here = isinstance(to, LocalTransport)
    files = (_agent_file(), _pynvml_file()) if here else None
    at_hand = files is not None and all(one is not None and one.is_file() for one in files)
    body = _LOADER_HERE if at_hand else LOADER
    loader = f"import sys;sys.version_info>=(3,8)or sys.exit({NO_PYTHON_STATUS});{body}"
    words = [shlex.quote(str(one)) for one in files or ()] if at_hand else []
    return " ".join([f'{_exports(env)}exec {word} -ISuc "{loader}"', *words])


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


def _agent_file() -> Path | None:
    found = importlib.resources.files("eaglemon.agent").joinpath("agent.py")
    return found if isinstance(found, Path) else None


@functools.cache
def _pynvml_file() -> Path | None:
    found = importlib.util.find_spec("pynvml")
    return Path(found.origin) if found is not None and found.origin is not None else None


def _pynvml_source() -> bytes:
    file = _pynvml_file()
    return file.read_bytes() if file is not None else b""


def _quote_path(path: str) -> str:
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(path)
