"""One task of the draft doctor in a Python of its own: a request on stdin, an answer on stdout.

This is what runs in a server's Python, from a bundle of the packages that it needs (see
``elsewhere``). It imports nothing but the standard library, torch and, to capture, transformers.
"""

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eaglemon.errors import EaglemonError, UsageError


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out ``{"do": "check" | "capture", ...}``; errors become ``{"error": ...}``."""
    arguments = dict(request)
    try:
        match arguments.pop("do", None):
            case "check":
                # Each task loads only what it needs.
                from eaglemon.draft.examine import examine  # noqa: PLC0415

                places = [Path(arguments.pop(key)) for key in ("draft", "target", "hidden")]
                return {"result": asdict(examine(*places, **arguments))}
            case "capture":
                from eaglemon.draft.capture import capture  # noqa: PLC0415

                target, out = Path(arguments.pop("target")), Path(arguments.pop("out"))
                return {
                    "result": asdict(capture(target, arguments.pop("prompts"), out, **arguments))
                }
            case other:
                raise UsageError(f"unknown task {other!r}")
    except EaglemonError as error:
        return {"error": {"message": error.message, "hint": error.hint, "code": error.exit_code}}


def main() -> None:
    """Answer the request on stdin; whatever libraries print goes to stderr."""
    request = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        found = answer(request)
    json.dump(found, sys.stdout)
