"""One diagnosis where the draft lies: its files, an offline run, and what a server achieved.

The same call serves this machine and, sent along, a server's own Python on its host.
"""

import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from eaglemon.core.draft_diagnosis import diagnose_draft
from eaglemon.core.draft_files import BROKEN_FILES
from eaglemon.core.draft_verdict import (
    DraftEvidence,
    DraftReport,
    LengthAlong,
    ServedFigures,
    ServedRequest,
)
from eaglemon.core.draft_views import Captured, CheckStage, Examination, InspectView
from eaglemon.core.problems import Severity
from eaglemon.core.wiring import release_rules
from eaglemon.draft.checkpoint import read_json
from eaglemon.draft.inspect import inspect
from eaglemon.draft.layout import target_body, target_shape
from eaglemon.engines.wiring import able_releases, wiring_of


def diagnose(
    folder: Path,
    target: Path,
    *,
    engine: str,
    engine_version: str | None = None,
    algorithm: str | None = None,
    served: Mapping[str, Any] | None = None,
    baseline_tok_s: float | None = None,
    hidden: Path | None = None,
    prompts: Sequence[str] = (),
    new_tokens: int = 192,
    place: str = "",
    told: Callable[[CheckStage], None] = lambda _: None,
    **options: Any,
) -> DraftReport:
    """Judge the draft in ``folder``.

    ``served`` are the fields of ``ServedFigures``. The draft is run offline over ``hidden``, or
    over what the target makes of ``prompts`` now, which is not kept. ``place`` stands before the
    folders in the commands of the fixes (``HOST:``); ``told`` hears what it is at; ``options`` go
    to ``examine``. Raises ``ConfigError`` and ``UsageError`` as ``inspect``, ``capture`` and
    ``examine`` do.
    """
    view = inspect(folder, target=target)
    rules = wiring_of(engine)
    engine_version, doubt = release_rules(rules, engine_version)
    shape = target_shape(target_body(read_json(target / "config.json")))
    config = read_json(folder / "config.json")
    captured: Captured | None = None
    offline = Examination(checks=(), search=None)
    unrun = _cannot_run(view) if hidden is not None or prompts else ""
    warnings = [doubt] if doubt else []
    if unrun:
        warnings.append(f"the draft was not run offline: {unrun}")
    elif hidden is not None:
        offline = _examined(folder, target, hidden, options)
    elif prompts:
        captured, offline = _captured(
            folder, target, prompts, options, new_tokens=new_tokens, told=told
        )
    slots = offline.search.slots if offline.search else None
    command = partial(_set_layers, f"{place}{folder}", f"{place}{target}", slots)
    change = None
    elsewhere: tuple[str, ...] = ()
    if slots is not None and shape is not None:
        change = rules.wire(config, slots, shape, engine_version)
        able = sorted(able_releases(config, slots, shape), key=lambda one: one[0] != engine)
        elsewhere = tuple(
            f"{wiring_of(name).title} {release}: {command(name, release)}"
            + (f" ({notes})" if notes else "")
            for name, release, notes in able
        )
    diagnosis = diagnose_draft(
        DraftEvidence(
            algorithm=algorithm,
            inspect=view,
            captures=() if shape is None else rules.captures(config, shape, engine_version),
            checks=offline.checks,
            search=offline.search,
            as_is=offline.as_is,
            relabelled=offline.relabelled,
            served=None if served is None else _figures(served),
            baseline_tok_s=baseline_tok_s,
            change=change,
            remedies=rules.remedies(engine_version),
            set_layers=command(engine, engine_version),
            elsewhere=elsewhere,
        )
    )
    return DraftReport(
        diagnosis=diagnosis,
        inspect=view,
        checks=offline.checks,
        search=offline.search,
        relabelled=offline.relabelled,
        captured=captured,
        engine_version=engine_version,
        warnings=tuple(warnings),
    )


def _set_layers(
    folder: str, target: str, slots: Sequence[int] | None, engine: str, version: str | None
) -> str:
    """Return the command that wires a draft for an engine; without ``slots`` they are to be named.

    Both folders are as the command is to name them.
    """
    words = ["eaglemon", "draft", "set-layers", folder, "--engine", engine]
    if slots is not None:
        words += ["--hs", ",".join(str(slot) for slot in slots)]
    if version is not None:
        words += ["--engine-version", version]
    return shlex.join([*words, "--target", target])


def _cannot_run(view: InspectView) -> str:
    """Return why a draft cannot be run offline; empty where it can."""
    if view.attention == "mla":
        return "it has multi-head latent attention (MLA), which is inspected and not run"
    broken = (
        problem
        for problem in view.problems
        if problem.slug in BROKEN_FILES and problem.severity is Severity.ERROR
    )
    return next((str(problem) for problem in broken), "")


def _examined(folder: Path, target: Path, hidden: Path, options: Mapping[str, Any]) -> Examination:
    # Torch is loaded for this alone.
    from eaglemon.draft.examine import examine  # noqa: PLC0415

    return examine(folder, target, hidden, **options)


def _captured(
    folder: Path,
    target: Path,
    prompts: Sequence[str],
    options: Mapping[str, Any],
    *,
    new_tokens: int,
    told: Callable[[CheckStage], None],
) -> tuple[Captured, Examination]:
    from eaglemon.draft.capture import capture  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="eaglemon-") as scratch:
        file = Path(scratch) / "hidden.safetensors"
        shared = {key: options[key] for key in ("device", "threads") if key in options}
        captured = capture(target, prompts, file, new_tokens=new_tokens, told=told, **shared)
        told(CheckStage(doing="running the draft"))
        found = _examined(folder, target, file, options)
    return replace(captured, path="(not kept)"), found


def _figures(served: Mapping[str, Any]) -> ServedFigures:
    # Where the request came as JSON, tuples are lists and values are mappings.
    along = served.get("along")
    requests = served.get("requests", ())
    return ServedFigures(
        **{
            **served,
            "survival": tuple(served.get("survival", ())),
            "along": None if along is None else LengthAlong(**along),
            "requests": tuple(ServedRequest(**request) for request in requests),
        }
    )
