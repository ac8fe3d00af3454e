"""One task of the draft doctor: a request of plain values, carried out where the draft lies.

Commands carry it out here, in another Python of this machine, or on a host: there it runs from a
bundle of the packages that it needs (see ``elsewhere``). It imports nothing but the standard
library, torch and, to capture, transformers.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eaglemon.core.draft_views import CheckStage
from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.diagnose import diagnose
from eaglemon.draft.hub_cache import located
from eaglemon.draft.inspect import inspect
from eaglemon.draft.outlook import outlook
from eaglemon.draft.repair import offer, plan_permutation, plan_slots, undo
from eaglemon.errors import EaglemonError, UsageError

_COMPUTING = frozenset({"check", "capture", "diagnose"})
_PLACES = ("folder", "target", "hidden", "out")


def perform(request: Mapping[str, Any], told: Callable[[CheckStage], None] = lambda _: None) -> Any:
    """Carry out ``{"do": NAME, ...}`` and return one of ``core.draft_views``.

    ``inspect``, ``check``, ``capture``, ``outlook``, ``diagnose``, ``set-layers``, ``repair`` and
    ``undo``; other keys are the arguments, and ``env`` the variables that say where models are
    cached. ``told`` hears what a diagnosis is at. Raises ``EaglemonError``.
    """
    env = request.get("env") or {}
    arguments = {key: _place(key, value, env) for key, value in request.items() if key != "env"}
    if arguments.get("do") in _COMPUTING and arguments.get("threads") is None:
        # Of the machine that computes; the other half is the server's.
        arguments["threads"] = max(1, (os.cpu_count() or 2) // 2)
    found: Any
    match arguments.pop("do", None):
        case "inspect":
            # Keys are texts where the request came as JSON.
            counts = arguments.pop("token_counts", None) or {}
            counted = {int(token): count for token, count in counts.items()}
            found = inspect(arguments.pop("folder"), token_counts=counted, **arguments)
        case "check":
            # Each of these loads torch, which the others do without.
            from eaglemon.draft.examine import examine  # noqa: PLC0415

            places = [arguments.pop(key) for key in ("folder", "target", "hidden")]
            found = examine(*places, **arguments)
        case "capture":
            from eaglemon.draft.capture import capture  # noqa: PLC0415

            places = [arguments.pop(key) for key in ("target", "prompts", "out")]
            found = capture(*places, **arguments)
        case "outlook":
            found = outlook(arguments.pop("target"), **arguments)
        case "diagnose":
            found = diagnose(
                arguments.pop("folder"), arguments.pop("target"), told=told, **arguments
            )
        case "set-layers":
            shown = arguments.pop("shown", None)
            found = offer(plan_slots(arguments.pop("folder"), **arguments), shown)
        case "repair":
            draft = open_checkpoint(arguments["folder"])
            found = offer(plan_permutation(draft, arguments["order"]), arguments.get("shown"))
        case "undo":
            found = undo(arguments["folder"])
        case other:
            raise UsageError(f"unknown task {other!r}")
    return found


def answer(
    request: Mapping[str, Any], told: Callable[[dict[str, Any]], None] = lambda _: None
) -> dict[str, Any]:
    """Carry out a request; errors become ``{"error": ...}``, and what libraries print stderr.

    The process takes over the request's ``env`` before it loads a library: an engine's packages
    may lie where only its profile says. ``told`` hears ``{"stage": ...}``.
    """

    def stage(at: CheckStage) -> None:
        told({"stage": asdict(at)})

    env = {name: str(value) for name, value in (request.get("env") or {}).items()}
    os.environ.update(env)
    sys.path[1:1] = [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return {"result": asdict(perform(request, stage))}
        except EaglemonError as error:
            fault = {"message": error.message, "hint": error.hint, "code": error.exit_code}
            return {"error": fault}


def main() -> None:
    """Answer the request on stdin."""
    json.dump(answer(json.load(sys.stdin)), sys.stdout)


def _place(key: str, value: Any, env: Mapping[str, str]) -> Any:
    if key not in _PLACES or value is None:
        return value
    return located(Path(value).expanduser(), env)
