"""Logs of real servers: phases, outcome, cause, decisive line, against what really happened."""

import json
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.diagnosis import Diagnosis, Outcome, diagnose
from eaglemon.engines import ENGINES

CAPTURES = Path(__file__).parents[1] / "captures"

# The words of the captures, and ours.
PHASES = {
    "config": "import",
    "engine-init": "distributed-init",
    "compile": "kv-cache",
    "load-draft-end": "load-draft",
}
NOT_PHASES = {"failed", "shutting-down", "not-responding"}
OUTCOMES = {
    "ready": {Outcome.READY, Outcome.STOPPED},
    "failed": {Outcome.FAILED},
    "ready-then-crashed": {Outcome.CRASHED},
    "ready-then-hung": {Outcome.HUNG},
    "terminated-while-serving": {Outcome.STOPPED},
    "unknown": {Outcome.UNKNOWN, Outcome.STARTING},
}
# What a log alone cannot tell.
CAUSE_NOT_IN_LOG = {
    "eagle3-wrongwired": "no line of the log differs but the accept length",
    "sigterm-during-startup": "the log just ends",
}


def _captures() -> list[tuple[str, str, Path, Path]]:
    found = [
        (folder.name, "sglang", folder / "server.log", folder / "expected.json")
        for folder in sorted((CAPTURES / "sglang-0.5.16-h200").iterdir())
    ]
    found += [
        (log.stem, "vllm", log, log.with_name(f"{log.stem}.expected.json"))
        for log in sorted((CAPTURES / "vllm-0.32-cpu").glob("*.log"))
    ]
    return found


def _expected(capture: tuple[str, str, Path, Path]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(capture[3].read_text())
    return parsed


def _loaded_and_ready(expected: dict[str, Any]) -> tuple[float, float] | None:
    """When the target began to load and the server was ready, by the capture's own stamps."""
    known = {PHASES.get(word, word): at for at, word in reversed(expected["timeline"])}
    load, ready = known.get("load-target"), known.get("ready")
    return None if load is None or ready is None else (load, ready)


def _named(capture: tuple[str, str, Path, Path]) -> str:
    return f"{capture[1]}-{capture[0]}"


ALL = _captures()
TIMED = [one for one in ALL if _loaded_and_ready(_expected(one))]
MEASURED = [one for one in ALL if "lines" in (_expected(one).get("measured") or {})]


@pytest.fixture(params=ALL, ids=_named)
def capture(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], Diagnosis]:
    name, engine, log, _ = request.param
    diagnosis = diagnose(log.read_bytes(), engine=engine, rules=ENGINES[engine].log_rules)
    return name, _expected(request.param), diagnosis


def test_all_captures_are_here() -> None:
    assert (len(ALL), len(TIMED), len(MEASURED)) == (28, 12, 4)


def test_phases(capture: tuple[str, dict[str, Any], Diagnosis]) -> None:
    _, expected, diagnosis = capture
    phases: list[str] = []
    stages: list[str] = []
    for _, word in expected["timeline"]:
        phase, _, stage = word.partition(":")
        if stage:
            stages.append(stage.strip().replace(" ", "-"))
        phase = PHASES.get(phase, phase)
        if phase not in NOT_PHASES and phase not in phases:
            phases.append(phase)
    got = [view.phase.value for view in diagnosis.timeline]
    # Serving follows ready in a log but is no point of the captures' timelines; one of them
    # has no warm-up, which its log shows.
    optional = {"serving", "warm-up"} - set(phases)
    assert [phase for phase in got if phase not in optional] == phases or not phases
    captured = [
        stage.name
        for view in diagnosis.timeline
        if view.phase == "graph-capture"
        for stage in view.stages
    ]
    assert captured == stages


@pytest.mark.parametrize("capture", TIMED, ids=_named, indirect=True)
def test_times(capture: tuple[str, dict[str, Any], Diagnosis]) -> None:
    """Phases begin when they did: differences of stamps, so within the stamps' second."""
    _, expected, diagnosis = capture
    begins = {view.phase.value: view.started_s for view in diagnosis.timeline}
    stamps = _loaded_and_ready(expected)
    assert stamps is not None
    load, ready = stamps
    begin, end = begins["load-target"], begins["ready"]
    assert begin is not None
    assert end is not None
    assert end - begin == pytest.approx(ready - load, abs=1.01)


def test_outcome(capture: tuple[str, dict[str, Any], Diagnosis]) -> None:
    _, expected, diagnosis = capture
    assert diagnosis.outcome in OUTCOMES[expected["outcome"]]


def test_cause(capture: tuple[str, dict[str, Any], Diagnosis]) -> None:
    name, expected, diagnosis = capture
    if name in CAUSE_NOT_IN_LOG:
        assert diagnosis.cause is None
        return
    assert diagnosis.cause == expected["cause"]
    if diagnosis.cause is None:
        assert diagnosis.decisive_line is None
        return
    assert diagnosis.remedy
    assert diagnosis.decisive_line is not None
    assert expected["decisive_line"].strip() in diagnosis.decisive_line
    number = expected.get("decisive_line_number")
    if diagnosis.decisive_line.strip() == expected["decisive_line"].strip() and number:
        assert diagnosis.line_number == number


@pytest.mark.parametrize("capture", MEASURED, ids=_named, indirect=True)
def test_accept_length_of_log_lines(capture: tuple[str, dict[str, Any], Diagnosis]) -> None:
    """The mean over vLLM's periodic lines agrees with their sums of tokens and drafts."""
    _, expected, diagnosis = capture
    measured = expected["measured"]
    assert diagnosis.decode_lines == len(measured["lines"])
    assert diagnosis.accept_length == pytest.approx(measured["accept_len"], rel=0.02)


def test_timeline_of_two_ranks_is_told_once() -> None:
    folder = CAPTURES / "sglang-0.5.16-h200" / "tp2-right-killrank"
    diagnosis = diagnose(
        (folder / "server.log").read_bytes(),
        engine="sglang",
        rules=ENGINES["sglang"].log_rules,
    )
    phases = [view.phase for view in diagnosis.timeline]
    assert len(phases) == len(set(phases))
    draft = next(view for view in diagnosis.timeline if view.phase == "load-draft")
    assert (draft.done, draft.total) == (1, 1)
