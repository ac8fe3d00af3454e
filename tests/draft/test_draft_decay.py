"""A draft that is good at first and not later: along the output, beyond its positions, in time."""

from dataclasses import replace

import pytest

from eaglemon.core.draft_diagnosis import diagnose_draft
from eaglemon.core.draft_served import length_along, served_figures
from eaglemon.core.draft_verdict import DraftVerdict, LengthAlong, ServedFigures, ServedRequest
from eaglemon.core.probe import (
    Arrival,
    ProbePlan,
    ProbeProgress,
    RequestRecord,
    RequestStatus,
    figures_of,
)
from eaglemon.core.problems import Problem, Severity
from eaglemon.core.speculation import AcceptCounts
from eaglemon.engines.wiring import WIRING, wiring_of
from eaglemon.errors import UsageError
from tests.draft.test_draft_diagnosis import GOOD, INSPECT, RIGHT, served


def answered(number: int, chunks: list[int], prompt_tokens: int = 40) -> RequestRecord:
    """Return a request whose verify steps gave ``chunks`` tokens, after the prompt's own token."""
    tokens = [1, *chunks]
    return RequestRecord(
        number=number,
        prompt_id=str(number),
        status=RequestStatus.OK,
        sent_at=0.0,
        took_s=1.0,
        arrivals=tuple(Arrival(at_s=0.01 * i, tokens=n) for i, n in enumerate(tokens)),
        completion_tokens=sum(tokens),
        prompt_tokens=prompt_tokens,
        counts=AcceptCounts(steps=len(chunks), accepted=sum(chunks) - len(chunks)),
    )


def probed(records: list[RequestRecord], prompts: str = "a") -> ProbeProgress:
    return ProbeProgress(
        server_id="s",
        plan=ProbePlan(
            workload="chat", prompts=(), requests=1, concurrency=1, prompts_sha256=prompts
        ),
        state="done",
        done=len(records),
        elapsed_s=1.0,
        remaining_s=None,
        figures=figures_of(records, users=1),
        records=tuple(records),
    )


FALLING = [answered(i, [4, 5, 4, 3] * 5 + [2, 1 + i % 2, 2] * 12) for i in range(6)]
LEVEL = [answered(i, [4, 3, 3, 4, 3 + i % 2] * 8) for i in range(6)]


def test_chunks_tell_how_the_length_goes_along_the_output() -> None:
    figures = served_figures(probed(FALLING))
    assert figures.along is not None
    assert figures.along.early == pytest.approx(3.9, abs=0.3)
    assert figures.along.late == pytest.approx(1.8, abs=0.3)
    assert figures.along.fall_se > 3
    level = served_figures(probed(LEVEL)).along
    assert level is not None
    assert level.late == pytest.approx(level.early, rel=0.05)


def test_chunks_that_were_merged_or_short_tell_nothing() -> None:
    # Two verify steps in a chunk: 7 tokens where the engine counts 3.5 a step.
    merged = [answered(i, [7] * 20) for i in range(6)]
    assert length_along(merged, 3.5) is None
    assert length_along([answered(i, [4] * 10) for i in range(6)], 4.0) is None
    assert length_along(LEVEL[:2], 3.5) is None
    assert length_along(LEVEL, None) is None


def test_a_fall_along_the_output_is_a_decay() -> None:
    figures = replace(served(GOOD, 150.0), along=served_figures(probed(FALLING)).along)
    diagnosis = diagnose_draft(replace(RIGHT, served=figures))
    assert diagnosis.verdict is DraftVerdict.DECAY
    assert diagnosis.sentence.startswith("the accept length falls along the output: ")
    assert "6 outputs of about" in diagnosis.evidence[0]
    assert diagnosis.certain
    assert any("train it at the length it serves" in fix for fix in diagnosis.fixes)
    rope = Problem(where="rope", message="the draft has {}, the target {}", hint="")
    odd = replace(INSPECT, problems=(replace(rope, severity=Severity.WARNING),))
    diagnosis = diagnose_draft(replace(RIGHT, served=figures, inspect=odd))
    assert not diagnosis.certain
    assert "rope_scaling" in diagnosis.fixes[0]


def test_a_fall_within_the_noise_is_none() -> None:
    along = LengthAlong(early=3.6, late=3.0, fall_se=1.2, requests=4, tokens=128)
    figures = replace(served(GOOD, 150.0), along=along)
    assert diagnose_draft(replace(RIGHT, served=figures)).verdict is DraftVerdict.FINE


def test_requests_beyond_the_positions_are_compared_with_those_within() -> None:
    def requests(beyond: int) -> tuple[ServedRequest, ...]:
        return (
            ServedRequest(context_tokens=900, steps=300, accepted=780),
            ServedRequest(context_tokens=2500, steps=300, accepted=beyond),
        )

    figures = replace(served(GOOD, 150.0), requests=requests(120))
    diagnosis = diagnose_draft(replace(RIGHT, served=figures))
    assert diagnosis.verdict is DraftVerdict.CONTEXT
    assert diagnosis.certain
    assert "served accept length 3.60 up to 2,048 tokens, 1.40 beyond" in diagnosis.evidence
    figures = replace(figures, requests=requests(790))
    assert diagnose_draft(replace(RIGHT, served=figures)).verdict is DraftVerdict.FINE


def test_a_fall_since_an_earlier_probe_asks_for_a_restart() -> None:
    now = probed([answered(i, [2] * 60) for i in range(4)])
    figures = served_figures(now, probed(LEVEL))
    assert figures.earlier_length == pytest.approx(3.5, abs=0.1)
    assert figures.accept_length == 2.0
    alone = ServedFigures(accept_length=2.0, survival=GOOD, tok_s=150.0, earlier_length=3.5)
    diagnosis = diagnose_draft(replace(RIGHT, served=alone))
    assert diagnosis.verdict is DraftVerdict.DECAY
    assert diagnosis.sentence.endswith("3.50 then, 2.00 now")
    assert "restart the server" in diagnosis.fixes[0]
    with pytest.raises(UsageError, match="other prompts"):
        served_figures(now, probed(LEVEL, prompts="b"))


def test_a_draft_that_fits_only_with_another_norm_is_told_so() -> None:
    search = RIGHT.search
    assert search is not None
    best = replace(search.best.hypothesis, flags=("+norm_before_residual",))
    other = replace(search, best=replace(search.best, hypothesis=best))
    remedies = wiring_of("sglang").remedies("0.5.16")
    diagnosis = diagnose_draft(replace(RIGHT, search=other, remedies=remedies))
    assert diagnosis.verdict is DraftVerdict.NORMS
    assert "norm_before_residual on" in diagnosis.sentence
    assert diagnosis.certain
    assert diagnosis.fixes[1:] == ("SGLang: it never reads norm_before_residual",)
    best = replace(search.best.hypothesis, flags=("+norm_output",))
    other = replace(search, best=replace(search.best, hypothesis=best))
    diagnosis = diagnose_draft(replace(RIGHT, search=other, remedies=remedies))
    assert "norm_output on" in diagnosis.sentence
    assert len(diagnosis.fixes) == 1
    shifted = replace(search.best.hypothesis, hidden_shift=1)
    other = replace(search, best=replace(search.best, hypothesis=shifted))
    diagnosis = diagnose_draft(replace(RIGHT, search=other))
    assert diagnosis.verdict is DraftVerdict.NORMS
    assert "hidden state shifted by +1" in diagnosis.sentence
    assert not diagnosis.certain


def test_right_layers_and_a_poor_first_step_is_the_server_s_doing() -> None:
    """Not the draft's: offline it does well with the very layers that are served."""
    diagnosis = diagnose_draft(replace(RIGHT, served=served((0.5, 0.3, 0.2, 0.1, 0.05), 100.0)))
    assert diagnosis.verdict is DraftVerdict.SERVING
    assert diagnosis.sentence.endswith("0.50 served, 0.78 offline")
    assert not diagnosis.certain
    # Of text that was sampled, or of other people's, the offline run says nothing.
    for temperature in (0.7, None):
        figures = replace(served((0.5, 0.3, 0.2, 0.1, 0.05), 100.0), temperature=temperature)
        other = diagnose_draft(replace(RIGHT, served=figures))
        assert other.verdict is not DraftVerdict.SERVING


@pytest.mark.parametrize("engine", sorted(WIRING))
def test_each_engine_names_its_own_settings(engine: str) -> None:
    remedies = wiring_of(engine).remedies(None)
    named = {DraftVerdict(verdict) for verdict in remedies}
    wanted = {"ALGORITHM", "NORMS", "RECURRENCE", "SERVING", "CONTEXT", "OVERHEAD"}
    assert named == {DraftVerdict[name] for name in wanted}
    diagnosis = diagnose_draft(replace(RIGHT, algorithm="EAGLE", remedies=remedies))
    assert diagnosis.fixes[-1] == remedies["wrong-algorithm"][-1]
