"""SGLang's HTTP: generations, their streams, and its metrics."""

from collections.abc import Mapping
from typing import Any

from eaglemon.core.prometheus import Metrics, Sample
from eaglemon.core.speculation import AcceptCounts, counts_from_histogram
from eaglemon.core.sse import SseEvent
from eaglemon.engines.base import (
    AnswerSeen,
    Gauges,
    GenerateRequest,
    HttpCall,
    StreamEvent,
    StreamFailed,
    TokensSeen,
)
from eaglemon.engines.streams import DONE, histogram_of, read_chunk, whole

_HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_MOST_DRAFTS = 1024
"""No engine drafts more tokens a step: a larger number is a mistake of its answer."""
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")


def generate_call(request: GenerateRequest) -> HttpCall:
    """Return the native call: only it tells the verify steps of a request.

    The seed is used with ``--enable-deterministic-inference`` only; 0.5.23 verifies drafts with it,
    0.5.16 does not.
    """
    sampling: dict[str, object] = {
        "max_new_tokens": request.max_tokens,
        "temperature": request.temperature,
        "ignore_eos": request.ignore_eos,
    }
    if request.seed is not None:
        sampling["sampling_seed"] = request.seed
    return HttpCall(
        method="POST",
        path="/generate",
        body={"text": request.prompt, "sampling_params": sampling, "stream": request.stream},
    )


class SglangDecoder:
    """Decodes a native stream: every chunk repeats all of the text and the number of tokens."""

    def __init__(self) -> None:
        self._text = ""
        self._tokens = 0
        self._meta: Mapping[str, Any] = {}
        self._over = False

    def feed(self, event: SseEvent) -> list[StreamEvent]:
        """Take one event; after the end or a failure nothing more is told."""
        if self._over:
            return []
        if event.data.strip() == DONE:
            return self._end()
        chunk = read_chunk(event, "sglang")
        if isinstance(chunk, StreamFailed):
            return self._fail(chunk.message)
        meta = chunk.get("meta_info")
        if not isinstance(meta, dict):
            return self._fail(f"sglang sent a chunk without meta_info: {event.data[:80]!r}")
        self._meta = meta
        reason = meta.get("finish_reason")
        if isinstance(reason, dict) and reason.get("type") == "abort":
            return self._fail(f"sglang aborted the request: {reason.get('message', 'no reason')}")
        return self._advance(str(chunk.get("text") or ""), meta.get("completion_tokens"))

    def _advance(self, text: str, told: object) -> list[StreamEvent]:
        tokens = 0 if told is None else whole(told)
        if tokens is None:
            return self._fail(f"sglang sent completion_tokens that is no number: {told!r:.80}")
        new = tokens - self._tokens
        # With --incremental-streaming-output the text is only what is new.
        fresh = text[len(self._text) :] if text.startswith(self._text) else text
        self._text = text if text.startswith(self._text) else self._text + text
        if new <= 0:
            return []
        self._tokens = tokens
        return [TokensSeen(new_tokens=new, text=fresh)]

    def _end(self) -> list[StreamEvent]:
        reason = self._meta.get("finish_reason")
        if not isinstance(reason, dict):
            return self._fail("sglang ended the stream before the answer was complete")
        self._over = True
        return [
            AnswerSeen(
                completion_tokens=self._tokens,
                prompt_tokens=whole(self._meta.get("prompt_tokens")),
                finish_reason=_text(reason.get("type")),
                counts=request_counts(self._meta),
                request_id=_text(self._meta.get("id")),
            )
        ]

    def _fail(self, message: str) -> list[StreamEvent]:
        self._over = True
        return [StreamFailed(message=message)]


def request_counts(meta: Mapping[str, Any]) -> AcceptCounts | None:
    """Return the speculation counts of one request's ``meta_info``, ``None`` without any.

    The histogram is exact: it holds what every verify step accepted. The answer's
    ``completion_tokens`` also has the token of the prefill, and lacks what the last step
    accepted beyond the end of the answer; it serves only where nothing else is told.
    """
    steps = whole(meta.get("spec_verify_ct"))
    if not steps:
        return None
    proposed = _first_int(meta, _PROPOSED)
    found = (histogram_of(meta.get(key), steps) for key in _HISTOGRAMS)
    histogram = next((one for one in found if one is not None), None)
    if histogram is not None:
        # The list ends at the longest run of this request; padded, requests can be added up.
        width = min(proposed // steps + 1, _MOST_DRAFTS) if proposed else len(histogram)
        return counts_from_histogram([*histogram, *[0] * (width - len(histogram))])
    accepted = _first_int(meta, _ACCEPTED)
    if accepted is None:
        accepted = max(0, (whole(meta.get("completion_tokens")) or 0) - steps)
    return AcceptCounts(steps=steps, accepted=accepted, proposed=proposed)


def read_gauges(metrics: Metrics) -> Gauges:
    """Read a scrape; the token and verify counters move when a request ends."""
    generated = metrics.sum("sglang:generation_tokens_total")
    steps = metrics.sum("sglang:spec_verify_calls_total")
    counts = None
    if steps is not None and generated is not None:
        counts = AcceptCounts(steps=int(steps), accepted=max(0, int(generated - steps)))
    lengths = [s.value for s in _served(metrics, "sglang:spec_accept_length") if s.value > 0]
    return Gauges(
        accept=counts,
        accept_length=sum(lengths) / len(lengths) if lengths else None,
        generation_tokens=generated,
        tok_s=_over_ranks(metrics, "sglang:gen_throughput"),
        running=_whole(_over_ranks(metrics, "sglang:num_running_reqs")),
        waiting=_whole(_over_ranks(metrics, "sglang:num_queue_reqs")),
        kv_used_fraction=max(
            (sample.value for sample in _served(metrics, "sglang:token_usage")), default=None
        ),
        started_at=metrics.value("process_start_time_seconds"),
    )


def _over_ranks(metrics: Metrics, name: str) -> float | None:
    """Sum over data-parallel ranks; the ranks of one model copy repeat the same value."""
    copies: dict[str, float] = {}
    for sample in _served(metrics, name):
        copy = sample.labels.get("dp_rank", "")
        copies[copy] = max(sample.value, copies.get(copy, sample.value))
    return sum(copies.values()) if copies else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _served(metrics: Metrics, name: str) -> list[Sample]:
    """Return a gauge's numbers without those of an engine that only drafts for this one."""
    return [s for s in metrics.numbers(name) if s.labels.get("engine_type") != "draft"]


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _first_int(meta: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((told for key in keys if (told := whole(meta.get(key))) is not None), None)
