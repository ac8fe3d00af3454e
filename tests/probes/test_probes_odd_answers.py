"""Answers that a probe cannot take at their word: malformed, without tokens, without counters."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eaglemon.app.probe_answer import Answer
from eaglemon.cli.tables import probe_lines
from eaglemon.core.probe import (
    Arrival,
    ProbeProgress,
    RequestRecord,
    RequestStatus,
    figures_of,
    tokens_of,
)
from eaglemon.core.sse import SseEvent
from eaglemon.core.steady import RequestSpan, steady_rate
from eaglemon.engines.base import StreamEvent
from eaglemon.errors import ProbeError
from eaglemon.io.store_queries import pack_arrivals, unpack_arrivals
from tests.probes.scripted_server import (
    DONE,
    END,
    OK,
    ScriptedServer,
    Step,
    chunk,
    event,
    good,
    local_hub,
    plan,
)

FROM = pytest.mark.parametrize("from_host", [True, False], ids=["from-host", "from-here"])
METRICS = "process_start_time_seconds {}\nsglang:generation_tokens_total {}\n"
STEPS = "sglang:spec_verify_calls_total {}\n"


def sse(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def vllm(*chunks: dict[str, Any]) -> list[Step]:
    """Return an answer of chunks, the last of them with the reason of its end."""
    steps: list[Step] = [OK]
    for index, one in enumerate(chunks, start=1):
        reason = "stop" if index == len(chunks) else None
        usual = {"id": "x", "choices": [{"text": " w", "finish_reason": reason}]}
        steps += [chunk(sse({**usual, **one})), 0.01]
    return [*steps, chunk(DONE), END]


def used(tokens: object) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 5, "completion_tokens": tokens}}


def spec(**told: object) -> dict[str, Any]:
    return {"metrics": {"speculative_decoding": {"num_spec_steps": 2, **told}}}


BAD: dict[str, tuple[str, list[Step], str]] = {
    "choices-of-null": ("vllm", vllm({"choices": [None], **used(1)}), "no list of objects"),
    "choices-of-text": ("vllm", vllm({"choices": "abc", **used(1)}), "no list of objects"),
    "usage-of-text": ("vllm", vllm(used("7")), "that is no number: '7'"),
    "tokens-of-text": ("sglang", good(1, 2, completion_tokens="abc"), "no number: 'abc'"),
    "tokens-nan": ("sglang", good(1, 2, completion_tokens=float("nan")), "no number: nan"),
    "nested": ("vllm", [OK, chunk(b"data: " + b"[" * 5000 + b"\n\n"), END], "no JSON"),
}


@FROM
@pytest.mark.parametrize("name", BAD)
async def test_a_malformed_answer_fails_its_own_request_only(
    name: str, tmp_path: Path, *, from_host: bool
) -> None:
    owner, bad, reason = BAD[name]
    fine = good(1, 4) if owner == "sglang" else vllm(used(1), used(4))
    done = await probe(lambda n: bad if n == 0 else fine, tmp_path, owner, from_host=from_host)
    assert (done.figures.ok, done.figures.failed) == (3, 1)
    [failed] = [r for r in done.records if r.status is RequestStatus.FAILED]
    assert reason in (failed.error or "")
    share = done.figures.steady_share
    assert share is None or share < 1


HISTOGRAMS = {
    "sglang": good(1, 6, spec_verify_ct=2, spec_correct_drafts_histogram=["a", None]),
    "vllm": vllm(used(1), used(6) | spec(acceptance_histogram=["a"], num_accepted_draft_tokens=4)),
}


@pytest.mark.parametrize("owner", HISTOGRAMS)
async def test_a_malformed_histogram_leaves_the_sums(owner: str, tmp_path: Path) -> None:
    done = await probe(lambda _: HISTOGRAMS[owner], tmp_path, owner)
    assert (done.figures.ok, done.figures.accept_length) == (4, 3.0)


@FROM
@pytest.mark.parametrize("owner", ["sglang", "vllm"])
async def test_an_error_that_is_null_is_none(
    owner: str, tmp_path: Path, *, from_host: bool
) -> None:
    null = {"error": None}
    answer = vllm(used(1) | null, used(3) | null)
    if owner == "sglang":
        last = json.loads(event(3, done=True)[6:]) | null
        answer = [OK, chunk(event(1)), chunk(sse(last)), chunk(DONE), END]
    done = await probe(lambda _: answer, tmp_path, owner, from_host=from_host)
    assert (done.figures.ok, done.figures.completion_tokens) == (4, 12)


class Spoiling:
    """A decoder with a mistake of its own."""

    def feed(self, event: SseEvent) -> list[StreamEvent]:
        raise AttributeError(event.data)


def test_a_decoder_that_breaks_spoils_one_request() -> None:
    answer = Answer(Spoiling())
    answer.feed(b"data: x\n\ndata: y\n\n", 0.1)
    record = answer.record(0, "p", sent_at=0.0, took_s=1.0)
    assert record.status is RequestStatus.FAILED
    assert record.error == "the answer cannot be read (AttributeError: x): 'x'"


TEXT: dict[str, Any] = {}
AT_END = [TEXT, TEXT, {"choices": [], **used(9)}]


def ended(*chunks: dict[str, Any]) -> list[Step]:
    """Return an answer whose text ends before its usage comes."""
    *text, last = chunks
    return [*vllm(*text)[:-2], chunk(sse({"id": "x", **last})), chunk(DONE), END]


@FROM
async def test_usage_at_the_end_tells_the_total_only(tmp_path: Path, *, from_host: bool) -> None:
    """9 tokens in 2 chunks: nobody knows how many were in the first."""
    metrics = _vllm_metrics(9)
    done = await probe(
        lambda _: ended(*AT_END), tmp_path, "vllm", from_host=from_host, metrics=metrics
    )
    figures = done.figures
    assert (figures.ok, figures.completion_tokens, done.foreign_tokens) == (4, 36, 0)
    assert figures.total_tok_s is not None
    assert figures.ttft_s is not None
    unknown = (figures.decode_tok_s, figures.token_time_s, figures.user_tok_s)
    assert (*unknown, figures.steady_tok_s) == (None, None, None, None)
    [note] = [note for note in done.notes if "do not tell" in note]
    assert "only their end does" in note


@FROM
async def test_chunks_of_one_token_each_are_known(tmp_path: Path, *, from_host: bool) -> None:
    chunks = [TEXT, TEXT, {"choices": [], **used(2)}]
    done = await probe(lambda _: ended(*chunks), tmp_path, "vllm", from_host=from_host)
    assert [a.tokens for a in done.records[0].arrivals] == [1, 1]
    assert done.figures.decode_tok_s is not None


@FROM
async def test_without_usage_no_tokens_are_known(tmp_path: Path, *, from_host: bool) -> None:
    metrics = _vllm_metrics(9)
    done = await probe(
        lambda _: vllm(TEXT, TEXT), tmp_path, "vllm", from_host=from_host, metrics=metrics
    )
    figures = done.figures
    assert (figures.ok, figures.completion_tokens, figures.total_tok_s) == (4, None, None)
    assert (done.foreign_tokens, done.counters_read) == (None, True)
    assert any("nor does their end" in note for note in done.notes)
    assert any(line.startswith("tokens         - in") for line in probe_lines(done))


def test_arrivals_without_tokens_are_kept_as_such() -> None:
    arrivals = (Arrival(at_s=0.1, tokens=None), Arrival(at_s=0.2, tokens=3))
    assert unpack_arrivals(pack_arrivals(arrivals)) == arrivals
    assert tokens_of(arrivals) is None


def test_a_steady_rate_is_of_requests_that_ended_well() -> None:
    def record(number: int, status: RequestStatus) -> RequestRecord:
        arrivals = (Arrival(at_s=0.2, tokens=1), Arrival(at_s=0.9, tokens=4))
        return RequestRecord(
            number=number,
            prompt_id="p",
            status=status,
            sent_at=float(number),
            took_s=1.0,
            arrivals=arrivals,
            completion_tokens=5,
        )

    well = [record(number, RequestStatus.OK) for number in range(4)]
    assert figures_of(well, users=1).steady_tok_s == 5.0
    assert figures_of(well, users=1).steady_share == 1.0
    # Over what remains, and marked: neither its tokens nor its time count.
    figures = figures_of([*well[:3], record(3, RequestStatus.CUT)], users=1)
    assert (figures.steady_tok_s, figures.steady_share) == (5.0, 0.75)
    figures = figures_of([well[0], record(1, RequestStatus.FAILED), *well[2:]], users=1)
    assert (figures.steady_tok_s, figures.steady_share) == (5.0, 0.75)
    none = figures_of([record(number, RequestStatus.CUT) for number in range(4)], users=1)
    assert (none.steady_tok_s, none.steady_share) == (None, None)


def test_other_users_count_only_where_all_were_busy() -> None:
    """The second user's request broke from 1.5 to 2.5: what the first got then does not count."""
    first = [span(number, number + 1.0, tokens=10) for number in range(6)]
    second = [
        span(0.5, 1.5, tokens=6),
        span(1.5, 2.5, tokens=99, well=False),
        span(2.5, 5.5, tokens=18),
        span(5.5, 6.5, tokens=6),
    ]
    rate = steady_rate([*first, *second], users=2)
    assert rate is not None
    # From 0.5 to 6 but for 1.5 to 2.5: answers that end at 1, 3, 4, 5 and 6, and at 1.5 and 5.5.
    assert rate.tok_s == pytest.approx((5 * 10 + 6 + 18) / 4.5)
    assert rate.share == pytest.approx(4.5 / 5.5)


def span(sent_at: float, ended_at: float, *, tokens: int, well: bool = True) -> RequestSpan:
    return RequestSpan(
        sent_at=sent_at, ended_at=ended_at, well=well, arrivals=((ended_at, tokens),)
    )


ACCEPT = {
    "none": (lambda _: None, "not told", "serves no metrics"),
    "lost": (
        lambda n: METRICS.format(1, 0) if n == 0 else None,
        "not told",
        "went away during the probe",
    ),
    "restarted": (lambda n: METRICS.format(1 + n, 6 * n), "not told", "was restarted"),
    "no-speculation": (lambda n: METRICS.format(1, 6 * n), "no speculation seen", None),
    "from-zero": (
        lambda n: METRICS.format(1, 6 * n) + STEPS.format(2 * n),
        "3.00 (rate -, from counter difference)",
        None,
    ),
    "named-later": (
        lambda n: (
            (METRICS.format(1, 6 * n) + STEPS.format(2 * n))
            if n
            else "up 1\nprocess_start_time_seconds 1\n"
        ),
        "3.00 (rate -, from counter difference)",
        None,
    ),
}


@pytest.mark.parametrize("name", ACCEPT)
async def test_what_nothing_tells_is_not_taken_for_no_speculation(
    name: str, tmp_path: Path
) -> None:
    metrics, said, note = ACCEPT[name]
    done = await probe(lambda _: good(1, 6), tmp_path, "sglang", metrics=metrics)
    [line] = [line for line in probe_lines(done) if line.startswith("accept length")]
    assert said in line
    assert (done.foreign_tokens is None) == (note is not None)
    if note is not None:
        assert any(note in told for told in done.notes)


def _vllm_metrics(tokens: int) -> Callable[[int], str]:
    return lambda n: f"vllm:generation_tokens_total {tokens * n}\n"


async def probe(
    script: Callable[[int], Sequence[Step]],
    state: Path,
    owner: str,
    *,
    from_host: bool = True,
    metrics: Callable[[int], str | None] = lambda _: None,
) -> ProbeProgress:
    """Return a probe of a server that answers so, as it ended."""
    played = "/generate" if owner == "sglang" else "/v1/completions"
    seen: list[ProbeProgress] = []
    async with (
        ScriptedServer(script, metrics, owner=owner, played=played) as server,
        local_hub(state) as hub,
    ):
        target = await hub.reach(server.url, host="local")
        given = plan(from_host=from_host, concurrency=1)
        try:
            return await hub.probe(target, given, seen=seen.append)
        except ProbeError:
            return seen[-1]
