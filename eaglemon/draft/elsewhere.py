"""Runs tasks of the draft doctor in another Python, such as the one that serves the engine.

The code goes along as a zip of the packages that it needs, which Python imports as it stands:
nothing is installed there.
"""

import io
import json
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import eaglemon
from eaglemon.core.draft_views import Captured, Examination
from eaglemon.errors import EXIT_USAGE, ConfigError, EaglemonError, UsageError

_PARTS = ("__init__.py", "errors.py", "core", "engines", "draft")
_MAIN = "from eaglemon.draft.task import main\n\nmain()\n"


def bundle() -> bytes:
    """Return a zip that ``python FILE`` runs as one task."""
    root = Path(eaglemon.__file__).parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _MAIN)
        for path in _sources(root):
            archive.writestr(f"eaglemon/{path.relative_to(root).as_posix()}", path.read_bytes())
    return packed.getvalue()


def check_with(python: str, request: Mapping[str, Any]) -> Examination:
    """Run ``examine`` in another Python; arguments as of ``task.answer``."""
    return msgspec.convert(_run(python, {"do": "check", **request}), Examination)


def capture_with(python: str, request: Mapping[str, Any]) -> Captured:
    """Run ``capture`` in another Python; arguments as of ``task.answer``."""
    return msgspec.convert(_run(python, {"do": "capture", **request}), Captured)


def _run(python: str, request: Mapping[str, Any]) -> Any:
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        file.write(bundle())
        file.flush()
        try:
            done = subprocess.run(
                [python, file.name],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise UsageError(f"{python}: cannot be run: {error.strerror}") from error
    try:
        found = json.loads(done.stdout)
    except ValueError as error:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise EaglemonError(
            f"{python}: the task ended with {done.returncode}: {last}",
            hint="it needs Python 3.11 with torch",
        ) from error
    if "error" in found:
        fault = found["error"]
        kind = ConfigError if fault["code"] == EXIT_USAGE else EaglemonError
        raise kind(fault["message"], hint=fault["hint"])
    return found["result"]


def _sources(root: Path) -> Iterator[Path]:
    for part in _PARTS:
        path = root / part
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))
