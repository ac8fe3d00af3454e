"""What decides among the faults of a log."""

import pytest

from eaglemon.core.diagnosis import (
    ECHO_CAUSE,
    GENERIC_CAUSE,
    REQUESTS_CUT,
    Diagnosis,
    FaultFold,
    Outcome,
    diagnose,
    outcome_of,
)
from eaglemon.core.phases import (
    DecodeStats,
    FaultSeen,
    LogEvent,
    LogReady,
    NoteSeen,
    Phase,
    PhaseEntered,
)
from eaglemon.engines import ENGINES


def _fault(cause: str, weight: int, number: int = 1) -> FaultSeen:
    return FaultSeen(cause=cause, line=cause, line_number=number, weight=weight)


GENERIC = _fault(GENERIC_CAUSE, 10)
ECHO = _fault(ECHO_CAUSE, 1)
OOM = _fault("cuda-oom", 60)
STOP = _fault("terminated-by-signal", 40)
HANG = _fault("worker-not-responding", 25)
LEAK = _fault("killed-no-traceback", 20)
LATER = PhaseEntered(phase=Phase.KV_CACHE)


@pytest.mark.parametrize(
    ("events", "outcome", "cause"),
    [
        ([], Outcome.STARTING, None),
        ([LogReady()], Outcome.READY, None),
        ([DecodeStats()], Outcome.READY, None),
        ([ECHO], Outcome.FAILED, None),
        ([GENERIC, ECHO, OOM], Outcome.FAILED, "cuda-oom"),
        ([OOM, _fault("other", 60, 2)], Outcome.FAILED, "cuda-oom"),
        ([LogReady(), OOM], Outcome.CRASHED, "cuda-oom"),
        # What did not keep it from being ready was no failure.
        ([OOM, LogReady()], Outcome.READY, None),
        ([GENERIC], Outcome.FAILED, GENERIC_CAUSE),
        ([GENERIC, LATER], Outcome.STARTING, GENERIC_CAUSE),
        ([GENERIC, LATER, ECHO], Outcome.FAILED, GENERIC_CAUSE),
        # A request that fails does not end a server.
        ([LogReady(), GENERIC], Outcome.READY, GENERIC_CAUSE),
        ([LEAK], Outcome.FAILED, "killed-no-traceback"),
        ([LogReady(), LEAK], Outcome.READY, None),
        ([LogReady(), HANG], Outcome.HUNG, "worker-not-responding"),
        ([LogReady(), HANG, ECHO, OOM], Outcome.CRASHED, "cuda-oom"),
        ([LogReady(), STOP, GENERIC, ECHO, OOM], Outcome.STOPPED, "terminated-by-signal"),
        # A dying engine stops itself the way it is stopped from outside.
        ([LogReady(), GENERIC, ECHO, STOP], Outcome.CRASHED, GENERIC_CAUSE),
        ([_fault("jit-lock-wait", 25)], Outcome.STALLED, "jit-lock-wait"),
    ],
)
def test_outcome_and_cause(events: list[LogEvent], outcome: Outcome, cause: str | None) -> None:
    fold = FaultFold()
    for event in events:
        fold.apply(event)
    assert outcome_of(fold, started=True) is outcome
    assert (fold.best.cause if fold.best else None) == cause


def _diagnose(log: str, engine: str = "sglang") -> Diagnosis:
    return diagnose(log.encode(), engine=engine, rules=ENGINES[engine].log_rules)


def test_empty_log() -> None:
    assert _diagnose("").outcome is Outcome.UNKNOWN


def test_unknown_exception_is_the_innermost() -> None:
    diagnosis = _diagnose(
        "Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "    raise OddError('inner')\n"
        "pkg.OddError: inner\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "RuntimeError: outer\n"
    )
    assert (diagnosis.outcome, diagnosis.cause) == (Outcome.FAILED, None)
    assert (diagnosis.decisive_line, diagnosis.line_number) == ("pkg.OddError: inner", 4)


def test_port_in_use_after_the_load_is_a_failure_although_http_seemed_up() -> None:
    diagnosis = _diagnose(
        "[2026-11-29 14:00:00] Load weight begin. avail mem=1 GB\n"
        "[2026-11-29 14:00:09] INFO:     Application startup complete.\n"
        "[2026-11-29 14:00:09] ERROR:    [Errno 98] error while attempting to bind on address "
        "('127.0.0.1', 30000): address already in use\n"
    )
    assert (diagnosis.outcome, diagnosis.cause) == (Outcome.FAILED, "port-in-use")
    assert diagnosis.phase is Phase.LOAD_TARGET


@pytest.mark.parametrize(("fraction", "words"), [(0.944, "already"), (0.5, "raise")])
def test_a_remedy_that_the_log_refutes_is_not_given(fraction: float, words: str) -> None:
    diagnosis = _diagnose(
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
        f"Current value: mem_fraction_static={fraction}\n"
    )
    assert diagnosis.cause == "kv-cache-no-memory"
    assert words in diagnosis.remedy


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("RuntimeError: Not enough memory. Please try to increase it.", Phase.KV_CACHE),
        # Told before anything of a cache is made: the phase entered last is the one that failed.
        ("ValueError: Loaded weights leave no GPU memory for the KV cache", Phase.LOAD_DRAFT),
    ],
)
def test_a_cache_without_room_is_the_cause_in_either_phase(text: str, phase: Phase) -> None:
    loaded = "[2026-11-29 14:00:00] Load weight begin. avail mem=1 GB\n" * 2
    diagnosis = _diagnose(f"{loaded}{text}\n")
    assert diagnosis.cause == "kv-cache-no-memory"
    assert diagnosis.phase is phase


def test_a_stop_that_cut_requests_is_a_cause_and_an_orderly_one_is_not() -> None:
    stop = (
        "(APIServer pid=1) INFO 11-29 14:40:51 [x.py:1] [shutdown] API server: shutdown triggered\n"
    )
    ready = "INFO:     Application startup complete.\n"
    assert _diagnose(ready + stop, "vllm").cause is None
    cut = _diagnose(ready + stop + "INFO:     Waiting for connections to close.\n", "vllm")
    assert (cut.outcome, cut.cause) == (Outcome.STOPPED, "terminated-by-signal")
    assert [note.slug for note in cut.notes] == [REQUESTS_CUT]
    assert isinstance(cut.notes[0], NoteSeen)
