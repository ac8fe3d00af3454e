"""Streams and answers of real servers, through the decoders."""

import json
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.speculation import AcceptCounts, add_counts
from eaglemon.core.sse import SseDecoder, SseEvent
from eaglemon.engines import ENGINES
from eaglemon.engines.base import (
    AnswerSeen,
    GenerateRequest,
    StreamEvent,
    StreamFailed,
    TokensSeen,
)
from eaglemon.engines.sglang.wire import request_counts
from eaglemon.engines.vllm.wire import speculation_counts

SGLANG = Path(__file__).parents[1] / "captures" / "sglang-0.5.16-h200"
VLLM = Path(__file__).parents[1] / "captures" / "vllm-0.32-cpu"


def _decode(engine: str, body: bytes) -> list[StreamEvent]:
    sse, decoder = SseDecoder(), ENGINES[engine].stream_decoder()
    events = [*sse.feed(body), *sse.close()]
    return [seen for event in events for seen in decoder.feed(event)]


def _body(raw: bytes) -> bytes:
    return raw.partition(b"\r\n\r\n")[2] if raw.startswith(b"HTTP/") else raw


def _sglang_counts(run: str, bench: str) -> tuple[AcceptCounts, float]:
    answers = [
        answer["meta_info"] for answer in json.loads((SGLANG / run / bench).read_text("utf-8"))
    ]
    counts = add_counts(c for meta in answers if (c := request_counts(meta)) is not None)
    assert counts is not None
    tokens = sum(meta["completion_tokens"] for meta in answers)
    return counts, tokens / sum(meta["spec_verify_ct"] for meta in answers)


def test_sglang_stream() -> None:
    chunks = json.loads((SGLANG / "eagle3-right" / "stream-generate.json").read_text("utf-8"))
    events = _decode("sglang", "".join(text for _, text in chunks).encode())
    *tokens, answer = events
    assert all(isinstance(event, TokensSeen) for event in tokens)
    assert [event.new_tokens for event in tokens[:2] if isinstance(event, TokensSeen)] == [1, 5]
    assert sum(event.new_tokens or 0 for event in tokens if isinstance(event, TokensSeen)) == 64
    text = "".join(event.text for event in tokens if isinstance(event, TokensSeen))
    assert text.startswith("-based monitoring tool for deterministic")
    assert text.endswith("py-code-review")
    assert isinstance(answer, AnswerSeen)
    assert (answer.completion_tokens, answer.prompt_tokens) == (64, 9)
    assert answer.finish_reason == "length"
    assert answer.counts == AcceptCounts(
        steps=21, accepted=43, proposed=105, per_position=(16, 14, 6, 4, 3)
    )


@pytest.mark.parametrize(
    ("run", "bench", "exact", "tokens_per_step"),
    [
        ("eagle3-right", "bench-c1.json", 3.7427, 3.7372),
        ("eagle3-right", "bench-c8.json", 3.8443, 3.8424),
        ("eagle3-right", "bench-c1-t0.8.json", 1.5862, 1.5901),
        ("eagle3-wrongwired", "bench-c1.json", 1.4566, 1.4587),
        ("sim-acc", "bench-c1.json", 2.7366, 2.7380),
        ("tp2-right-killrank", "bench-c1.json", 4.0214, 3.9922),
    ],
)
def test_sglang_accept_length(run: str, bench: str, exact: float, tokens_per_step: float) -> None:
    """Ours counts what the steps accepted; tokens over steps differs by under 1 %."""
    counts, ratio = _sglang_counts(run, bench)
    assert counts.accept_length == pytest.approx(exact, abs=1e-4)
    assert ratio == pytest.approx(tokens_per_step, abs=1e-4)
    assert counts.accept_length == pytest.approx(ratio, rel=0.01)
    # The positions are those of the same steps.
    assert counts.accept_length == pytest.approx(1 + sum(counts.survival))
    assert counts.proposed == counts.steps * 5


def test_sglang_accept_length_as_reported() -> None:
    right, right_ratio = _sglang_counts("eagle3-right", "bench-c1.json")
    wrong, wrong_ratio = _sglang_counts("eagle3-wrongwired", "bench-c1.json")
    assert right.accept_length is not None
    assert wrong.accept_length is not None
    assert (round(right.accept_length, 2), round(right_ratio, 2)) == (3.74, 3.74)
    assert (round(wrong.accept_length, 2), round(wrong_ratio, 2)) == (1.46, 1.46)


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"completion_tokens": 9}, None),
        ({"completion_tokens": 9, "spec_verify_ct": 0}, None),
        (
            {"completion_tokens": 9, "spec_verify_ct": 3, "spec_accept_histogram": [1, 1, 1]},
            AcceptCounts(steps=3, accepted=3, proposed=6, per_position=(2, 1)),
        ),
        (
            {"completion_tokens": 9, "spec_verify_ct": 3, "spec_accepted_drafts": 5},
            AcceptCounts(steps=3, accepted=5),
        ),
        # Oldest: only the steps are told.
        ({"completion_tokens": 9, "spec_verify_ct": 3}, AcceptCounts(steps=3, accepted=6)),
    ],
)
def test_sglang_older_names(meta: dict[str, Any], expected: AcceptCounts | None) -> None:
    assert request_counts(meta) == expected


@pytest.mark.parametrize("name", ["stream-bad-request", "stream-too-long"])
def test_sglang_error_answers(name: str) -> None:
    [[status, text]] = json.loads((SGLANG / "eagle3-right" / f"{name}.json").read_text("utf-8"))
    assert status == 400
    [failed] = ENGINES["sglang"].stream_decoder().feed(SseEvent(data=text))
    assert isinstance(failed, StreamFailed)
    assert "input" in failed.message


def test_sglang_incremental_text() -> None:
    decoder = ENGINES["sglang"].stream_decoder()
    seen: list[StreamEvent] = []
    for text, tokens, reason in (("a b", 2, None), (" c", 3, None), (" d", 4, {"type": "stop"})):
        meta = {"completion_tokens": tokens, "finish_reason": reason}
        seen += decoder.feed(SseEvent(data=json.dumps({"text": text, "meta_info": meta})))
    seen += decoder.feed(SseEvent(data="[DONE]"))
    assert [e.text for e in seen if isinstance(e, TokensSeen)] == ["a b", " c", " d"]
    assert isinstance(seen[-1], AnswerSeen)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("data", ["nonsense", "[1]", '{"error": {"message": "gone"}}', "[DONE]"])
def test_broken_streams_fail_once(engine: str, data: str) -> None:
    decoder = ENGINES[engine].stream_decoder()
    [failed] = decoder.feed(SseEvent(data=data))
    assert isinstance(failed, StreamFailed)
    assert decoder.feed(SseEvent(data="[DONE]")) == []


def test_vllm_stream_counts_tokens() -> None:
    events = _decode("vllm", _body((VLLM / "http" / "stream-continuous-usage.raw").read_bytes()))
    *tokens, answer = events
    assert [e.new_tokens for e in tokens if isinstance(e, TokensSeen)] == [1, 1, 2, 3, 1]
    assert isinstance(answer, AnswerSeen)
    assert (answer.completion_tokens, answer.prompt_tokens) == (8, 8)


def test_vllm_stream_without_usage_per_chunk() -> None:
    """A chunk is not taken for a token; the total is told at the end, or not at all."""
    events = _decode("vllm", _body((VLLM / "http" / "stream-include-usage.raw").read_bytes()))
    *tokens, answer = events
    assert {e.new_tokens for e in tokens if isinstance(e, TokensSeen)} == {None}
    assert isinstance(answer, AnswerSeen)
    assert answer.completion_tokens == 8
    plain = _decode("vllm", _body((VLLM / "http" / "stream-plain.raw").read_bytes()))
    assert isinstance(plain[-1], AnswerSeen)
    assert plain[-1].completion_tokens is None


def test_vllm_cut_stream_has_no_answer() -> None:
    """A server that is stopped just stops sending: no event says that the answer is complete."""
    events = _decode("vllm", _body((VLLM / "http" / "stream-cut-by-sigterm.raw").read_bytes()))
    assert events
    assert all(isinstance(event, TokensSeen) for event in events)


def test_vllm_per_request_metrics() -> None:
    answer = json.loads((VLLM / "http" / "per-request-spec-metrics.json").read_text("utf-8"))
    counts = speculation_counts(answer)
    assert counts == AcceptCounts(steps=17, accepted=23, proposed=51, per_position=(11, 8, 4))
    assert counts.accept_length == pytest.approx(2.3529, abs=1e-4)


def test_generate_calls() -> None:
    request = GenerateRequest(prompt="p", model="m", max_tokens=7, ignore_eos=True)
    native = ENGINES["sglang"].generate(request)
    assert native.path == "/generate"
    assert native.body == {
        "text": "p",
        "sampling_params": {"max_new_tokens": 7, "temperature": 0.0, "ignore_eos": True},
        "stream": True,
    }
    completion = ENGINES["vllm"].generate(request)
    assert completion.path == "/v1/completions"
    assert completion.body is not None
    assert completion.body["stream_options"] == {
        "include_usage": True,
        "continuous_usage_stats": True,
    }
