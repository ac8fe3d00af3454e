"""Runs tasks of the draft doctor in another Python, such as the one that serves the engine.

The code goes along as a zip of the packages that it needs, which Python imports as it stands:
nothing is installed there. On this machine that Python is a child; on a host the agent runs it.
"""

import base64
import io
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import eaglemon
from eaglemon.core.draft_verdict import DraftReport
from eaglemon.core.draft_views import (
    Captured,
    CaptureOutlook,
    CheckStage,
    Examination,
    InspectView,
    RepairView,
)
from eaglemon.errors import EXIT_USAGE, ConfigError, EaglemonError, UsageError

KINDS: Mapping[str, Any] = {
    "inspect": InspectView,
    "check": Examination,
    "capture": Captured,
    "outlook": CaptureOutlook,
    "diagnose": DraftReport,
    "set-layers": RepairView,
    "repair": RepairView,
    "undo": RepairView,
}
"""What each task answers."""
PROGRAM = b"""
import base64, json, sys, tempfile
if sys.version_info < (3, 11):
    sys.exit("this needs Python 3.11 or newer, and %s is %d.%d" % (
        (sys.executable,) + sys.version_info[:2]))
given = json.loads(EAGLEMON_INPUT)
with tempfile.NamedTemporaryFile(suffix=".zip") as file:
    file.write(base64.b64decode(given["bundle"]))
    file.flush()
    sys.path.insert(0, file.name)
    from eaglemon.draft.task import answer
    out = sys.stdout
    def tell(line):
        print(json.dumps(line), file=out, flush=True)
    tell(answer(given["request"], tell))
"""
"""A task as a program of the agent; its input is ``program_input``. It writes its stages, then what
it found."""
_PARTS = ("__init__.py", "errors.py", "core", "engines", "draft")
_RAISED = re.compile(r"\b([A-Z]\w*Error)\b")
_MISTAKES = frozenset(
    {"AttributeError", "IndexError", "KeyError", "TypeError", "ValueError", "ZeroDivisionError"}
)
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


def program_input(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``PROGRAM`` finds as its input: the code and the request."""
    return {"bundle": base64.b64encode(bundle()).decode(), "request": dict(request)}


def result_of(request: Mapping[str, Any], found: Mapping[str, Any], where: str = "") -> Any:
    """Return what a task answered as one of ``KINDS``, or raise its error; ``where`` it was."""
    if "error" in found:
        fault = found["error"]
        kind = ConfigError if fault["code"] == EXIT_USAGE else EaglemonError
        raise kind(
            f"{where}: {fault['message']}" if where else fault["message"], hint=fault["hint"]
        )
    return msgspec.convert(found["result"], KINDS[request["do"]])


def stage_of(found: Mapping[str, Any]) -> CheckStage | None:
    """Return what a line of ``PROGRAM`` says it is at, ``None`` for its answer."""
    return msgspec.convert(found["stage"], CheckStage) if "stage" in found else None


def perform_with(python: str, request: Mapping[str, Any]) -> Any:
    """Carry out a request of ``task.perform`` in another Python of this machine."""
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
            hint=hint_for(last, "it needs Python 3.11 with torch"),
        ) from error
    return result_of(request, found)


def hint_for(last: str, needs: str) -> str:
    """Return what a task needs of a Python, unless its ``last`` words are a mistake of its own."""
    found = _RAISED.search(last)
    own = found is not None and found[1] in _MISTAKES
    return "this is a mistake in eaglemon, or files of a kind it has not met" if own else needs


def _sources(root: Path) -> Iterator[Path]:
    for part in _PARTS:
        path = root / part
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))
