"""vLLM's HTTP: completions, their streams, and its metrics."""

from collections.abc import Mapping
from typing import Any

from eaglemon.core.prometheus import Metrics
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

_BROKEN_ENDS = frozenset({"abort", "error"})


def generate_call(request: GenerateRequest) -> HttpCall:
    """Return a completion call that has the number of tokens in each chunk."""
    body: dict[str, object] = {
        "model": request.model,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "ignore_eos": request.ignore_eos,
        "stream": request.stream,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stream:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return HttpCall(method="POST", path="/v1/completions", body=body)


class VllmDecoder:
    """Decodes an OpenAI-style stream.

    Tokens are counted by the usage that each chunk carries. A chunk without it does not tell how
    many it has: under speculation they are several. The total of an answer may still be told.
    """

    def __init__(self) -> None:
        self._prompt_tokens: int | None = None
        self._total: int | None = None
        self._reason: str | None = None
        self._counts: AcceptCounts | None = None
        self._id: str | None = None
        self._over = False

    def feed(self, event: SseEvent) -> list[StreamEvent]:
        """Take one event; after the end or a failure nothing more is told."""
        if self._over:
            return []
        if event.data.strip() == DONE:
            return self._end()
        chunk = read_chunk(event, "vllm")
        if isinstance(chunk, StreamFailed):
            return self._fail(chunk.message)
        return self._advance(chunk)

    def _advance(self, chunk: Mapping[str, Any]) -> list[StreamEvent]:
        self._counts = speculation_counts(chunk) or self._counts
        if isinstance(chunk.get("id"), str):
            self._id = chunk["id"]
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(one, dict) for one in choices):
            return self._fail(f"vllm sent choices that are no list of objects: {choices!r:.80}")
        text = "".join(_text_of(choice) for choice in choices)
        for choice in choices:
            reason = choice.get("finish_reason")
            self._reason = self._reason if reason is None else str(reason)
        if self._reason in _BROKEN_ENDS:
            return self._fail(f"vllm ended the answer: {self._reason}")
        usage = chunk.get("usage")
        told = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if not isinstance(usage, dict) or told is None:
            return [TokensSeen(new_tokens=None, text=text)] if text else []
        total = whole(told)
        if total is None:
            return self._fail(f"vllm sent completion_tokens that is no number: {told!r:.80}")
        self._prompt_tokens = whole(usage.get("prompt_tokens"))
        new = total - (self._total or 0)
        self._total = total
        # The last chunk has the usage of the whole answer and no choices.
        return [TokensSeen(new_tokens=new, text=text)] if choices and new > 0 else []

    def _end(self) -> list[StreamEvent]:
        if self._reason is None:
            return self._fail("vllm ended the stream before the answer was complete")
        self._over = True
        return [
            AnswerSeen(
                completion_tokens=self._total,
                prompt_tokens=self._prompt_tokens,
                finish_reason=self._reason,
                counts=self._counts,
                request_id=self._id,
            )
        ]

    def _fail(self, message: str) -> list[StreamEvent]:
        self._over = True
        return [StreamFailed(message=message)]


def speculation_counts(answer: Mapping[str, Any]) -> AcceptCounts | None:
    """Return the counts of an answer (``--per-request-spec-decode-metrics``), if it has any."""
    metrics = answer.get("metrics")
    told = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(told, dict):
        return None
    steps = whole(told.get("num_spec_steps"))
    if not steps:
        return None
    proposed = whole(told.get("num_draft_tokens"))
    histogram = histogram_of(told.get("acceptance_histogram"), steps)
    if histogram is not None:
        exact = counts_from_histogram(histogram)
        return AcceptCounts(
            steps=exact.steps,
            accepted=exact.accepted,
            proposed=proposed if proposed is not None else exact.proposed,
            per_position=exact.per_position,
        )
    accepted = whole(told.get("num_accepted_draft_tokens"))
    if accepted is None:
        return None
    return AcceptCounts(steps=steps, accepted=accepted, proposed=proposed)


def read_gauges(metrics: Metrics) -> Gauges:
    """Read a scrape, summed over the engines of data parallelism."""
    return Gauges(
        accept=_accept(metrics),
        generation_tokens=metrics.sum("vllm:generation_tokens_total"),
        running=_whole(metrics.sum("vllm:num_requests_running")),
        waiting=_whole(metrics.sum("vllm:num_requests_waiting")),
        kv_used_fraction=max(
            (
                sample.value
                for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
                for sample in metrics.numbers(name)
            ),
            default=None,
        ),
        started_at=metrics.value("process_start_time_seconds"),
    )


def _accept(metrics: Metrics) -> AcceptCounts | None:
    steps = metrics.sum("vllm:spec_decode_num_drafts_total")
    accepted = metrics.sum("vllm:spec_decode_num_accepted_tokens_total")
    if steps is None or accepted is None:
        return None
    positions = metrics.by_label("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position")
    ordered = sorted((int(at), count) for at, count in positions.items() if at.isdecimal())
    return AcceptCounts(
        steps=int(steps),
        accepted=int(accepted),
        proposed=_whole(metrics.sum("vllm:spec_decode_num_draft_tokens_total")),
        per_position=tuple(int(count) for _, count in ordered),
    )


def _text_of(choice: Mapping[str, Any]) -> str:
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return str(delta.get("content") or "")
    return str(choice.get("text") or "")


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
