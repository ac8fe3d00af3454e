"""Whole logs read: which engine wrote one, how it ended, and a remedy that it does not refute."""

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace

from eaglemon.core.diagnosis import Diagnosis, Outcome, diagnose
from eaglemon.core.problems import did_you_mean
from eaglemon.core.profiles import Profile
from eaglemon.core.runs import RunExit
from eaglemon.engines import ENGINES, engine_named
from eaglemon.engines.base import Engine
from eaglemon.errors import UsageError

_LOOKED_AT_BYTES = 4 << 20
_EXIT = re.compile(rb"\bexit ?code\s*[:=]?\s*(-?\d+)", re.IGNORECASE)
_SETTING = re.compile(rb"\b([a-z][a-z0-9_]{3,60})['\"]?\s*[=:]\s*['\"]?([\w.+-]+)")
_CLAUSE = re.compile(r",? or |, (?=lower|raise|switch|use|free)")
_HIGH_FRACTION = 0.9

_REFUTED: tuple[tuple[str, tuple[str, ...], Callable[[str], bool]], ...] = (
    (
        "switch the graphs off",
        ("disable_cuda_graph", "enforce_eager"),
        lambda value: value.lower() == "true",
    ),
    (
        "raise mem-fraction-static",
        ("mem_fraction_static",),
        lambda value: _number(value) >= _HIGH_FRACTION,
    ),
    (
        "raise gpu-memory-utilization",
        ("gpu_memory_utilization",),
        lambda value: _number(value) > _HIGH_FRACTION + 0.04,
    ),
    (
        "lower cuda-graph-max-bs-decode",
        ("cuda_graph_max_bs_decode", "cuda_graph_max_bs", "disable_cuda_graph"),
        lambda value: value.lower() == "true" or _number(value, 2) <= 1,
    ),
    (
        "lower tensor-parallel-size",
        ("tensor_parallel_size", "tp_size"),
        lambda value: _number(value, 2) <= 1,
    ),
)
"""An advice, the settings that may refute it, and the values that do."""


def read_log(data: bytes, *, engine: str | None = None, exit_code: int | None = None) -> Diagnosis:
    """Diagnose a whole log; raises ``UsageError`` where no engine's words are found in it.

    ``engine`` is recognised where ``None``. ``exit_code`` is that of the server's first process,
    negative for a signal, where the caller knows it.
    """
    found = engine_named(engine) if engine is not None else engine_of_log(data)
    diagnosis = diagnose(data, engine=found.name, rules=found.log_rules)
    return replace(
        diagnosis,
        outcome=_ended(diagnosis.outcome, exit_code),
        remedy=remedy_that_holds(diagnosis.remedy, settings_in(data)),
    )


def engine_of_log(data: bytes) -> Engine:
    """Return the engine of whose own words the log has most; raises ``UsageError``.

    Words that another engine says too do not count.
    """
    head = data[:_LOOKED_AT_BYTES]
    texts = {name: {rule.contains for rule in engine.log_rules} for name, engine in ENGINES.items()}
    told: dict[str, int] = {}
    for name, own in texts.items():
        others = set[str]().union(*(texts[other] for other in texts if other != name))
        told[name] = sum(text.encode() in head for text in own - others)
    best = max(told, key=lambda name: told[name])
    if not told[best] or list(told.values()).count(told[best]) > 1:
        names = [name for name in ENGINES if name.encode() in head.lower()]
        if len(names) != 1:
            raise UsageError(
                "cannot tell which engine wrote this log",
                hint=f"name it with --engine; {did_you_mean('', ENGINES)}",
            )
        (best,) = names
    return ENGINES[best]


def exit_in(data: bytes) -> RunExit | None:
    """Return the last exit that the log itself tells of, of whichever process."""
    last = None
    for match in _EXIT.finditer(data):
        last = int(match[1])
    return None if last is None else exit_of(last)


def exit_of(code: int) -> RunExit:
    """Return an exit code as an exit; negative ones are signals, 128 + n stays a code."""
    if code >= 0:
        return RunExit(code=code)
    try:
        return RunExit(signal=signal.Signals(-code).name)
    except ValueError:
        return RunExit(signal=f"signal {-code}")


def settings_in(data: bytes) -> dict[str, str]:
    """Return the settings that a log prints at its start, by their names with underscores."""
    return {
        match[1].decode(): match[2].decode().rstrip(".,")
        for match in _SETTING.finditer(data[:_LOOKED_AT_BYTES])
    }


def settings_of(profile: Profile) -> dict[str, str]:
    """Return a profile's flags in the same form."""
    return {name.replace("-", "_"): str(value) for name, value in profile.flags.items()}


def remedy_that_holds(remedy: str, settings: Mapping[str, str]) -> str:
    """Return the remedy without advice that the settings refute: already done, or no further."""
    refuted = [
        advice
        for advice, names, refutes in _REFUTED
        if any(name in settings and refutes(settings[name]) for name in names)
    ]
    if not any(advice in remedy for advice in refuted):
        return remedy
    kept = [
        clause
        for clause in _CLAUSE.split(remedy)
        if not any(clause.strip().startswith(advice) for advice in refuted)
    ]
    return ", or ".join(clause.strip() for clause in kept)


def _number(text: str, default: float = 0.0) -> float:
    try:
        return float(text)
    except ValueError:
        return default


def _ended(outcome: Outcome, exit_code: int | None) -> Outcome:
    if exit_code is None or outcome not in {Outcome.STARTING, Outcome.READY, Outcome.UNKNOWN}:
        return outcome
    if exit_code in {-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT}:
        return Outcome.STOPPED
    return Outcome.CRASHED if outcome is Outcome.READY else Outcome.FAILED
