"""The Prometheus metrics and periodic log lines of a simulated vLLM server."""

import os
import time
from dataclasses import dataclass, field

from eaglemon.sim.link import Message
from eaglemon.sim.prometheus import Metrics
from eaglemon.sim.vllm_answers import Generation
from eaglemon.sim.vllm_args import VllmArgs

_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass(slots=True)
class _Interval:
    """What happened since the last periodic line."""

    prompt: int = 0
    generated: int = 0
    steps: int = 0
    accepted: int = 0
    per_position: list[int] = field(default_factory=list)


class VllmMetrics:
    """Counters follow every step; speculation's are there from the start when it is on."""

    def __init__(self, args: VllmArgs, capacity: int) -> None:
        self._args = args
        self._metrics = Metrics()
        self._labels = {"engine": "0", "model_name": args.served_name}
        self._capacity = capacity
        self._interval = self._fresh()
        self._load = (0, 0, 0)
        self._was_busy = False
        metrics, labels = self._metrics, self._labels
        metrics.gauge("process_start_time_seconds", {}, time.time())
        metrics.count("process_cpu_seconds_total", {}, sum(os.times()[:2]))
        if args.draft_tokens:
            for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
                metrics.count(f"vllm:spec_decode_{name}_total", labels)
            for position in range(args.draft_tokens):
                self._count_position(position, 0)
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            metrics.gauge(f"vllm:{name}", labels, 0.0)
        for reason in ("capacity", "deferred"):
            waiting = {**labels, "reason": reason}
            metrics.gauge("vllm:num_requests_waiting_by_reason", waiting, 0.0)
        for state in ("awake", "weights_offloaded", "discard_all"):
            asleep = {**labels, "sleep_state": state}
            metrics.gauge("vllm:engine_sleep_state", asleep, float(state == "awake"))
        for name in (
            *("prefix_cache_queries", "prefix_cache_hits", "num_preemptions"),
            *("prompt_tokens", "generation_tokens"),
        ):
            metrics.count(f"vllm:{name}_total", labels)
        for reason in _REASONS:
            self._count_finish(reason, 0)
        metrics.observe("vllm:iteration_tokens_total", labels, _ITERATION)
        for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency"):
            metrics.observe(f"vllm:{name}_seconds", labels, _SECONDS)
        info = {
            "block_size": "16",
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "engine": "0",
            "gpu_memory_utilization": str(args.memory_utilization),
            "kv_cache_size_tokens": str(capacity),
        }
        metrics.gauge("vllm:cache_config_info", info, 1.0)

    def on_message(self, message: Message) -> None:
        """Count one step of the engine."""
        load = message.get("load")
        if isinstance(load, list):
            self._set_load(*load)
        outputs = message.get("out")
        if isinstance(outputs, list):
            for _id, new, accepted, finish in outputs:
                self._count_output(new, accepted)
                if finish:
                    self._count_finish(finish, 1)
            tokens = sum(one[1] for one in outputs)
            self._metrics.observe("vllm:iteration_tokens_total", self._labels, _ITERATION, tokens)

    def prompted(self, tokens: int) -> None:
        """Count the prompt of a request."""
        self._interval.prompt += tokens
        self._metrics.count("vllm:prompt_tokens_total", self._labels, tokens)
        self._metrics.count("vllm:prefix_cache_queries_total", self._labels, tokens)

    def chunk(self, waited_s: float, *, first: bool) -> None:
        """Count a streamed chunk: vLLM counts engine steps here, not tokens."""
        name = "time_to_first_token" if first else "inter_token_latency"
        self._metrics.observe(f"vllm:{name}_seconds", self._labels, _SECONDS, waited_s)

    def finished(self, generation: Generation) -> None:
        """Count a finished request."""
        metrics, labels = self._metrics, self._labels
        took = time.monotonic() - generation.received
        metrics.observe("vllm:e2e_request_latency_seconds", labels, _SECONDS, took)
        metrics.observe("vllm:request_prompt_tokens", labels, _TOKENS, generation.prompt_tokens)
        metrics.observe("vllm:request_generation_tokens", labels, _TOKENS, generation.tokens)
        if generation.tokens > 1:
            each = took / generation.tokens
            name = "vllm:request_time_per_output_token_seconds"
            metrics.observe(name, labels, _SECONDS, each)

    def answered(self, method: str, path: str, status: int) -> None:
        """Count an HTTP answer; probes of health and metrics are left out."""
        if path not in {"/health", "/metrics", "/ping", "/version", "/load"}:
            where = {"handler": path, "method": method, "status": f"{status // 100}xx"}
            self._metrics.count("http_requests_total", where, 1)

    def render(self) -> bytes:
        """Return the text of ``/metrics``."""
        return self._metrics.render()

    def stats_lines(self, seconds: float) -> list[tuple[str, str]]:
        """Return the periodic lines, (place, text) each: none when idle for two intervals."""
        now, self._interval = self._interval, self._fresh()
        running, waiting, tokens = self._load
        busy = bool(now.generated or running)
        if not busy and not self._was_busy:
            return []
        self._was_busy = busy
        load = (
            f"Engine 000: Avg prompt throughput: {now.prompt / seconds:.1f} tokens/s, "
            f"Avg generation throughput: {now.generated / seconds:.1f} tokens/s, "
            f"Running: {running} reqs, Waiting: {waiting} reqs, "
            f"GPU KV cache usage: {100 * tokens / self._capacity:.1f}%, "
            "Prefix cache hit rate: 0.0%"
        )
        lines = [("loggers.py:335", load)]
        if now.steps:
            drafted = now.steps * self._args.draft_tokens
            shares = ", ".join(f"{count / now.steps:.3f}" for count in now.per_position)
            speculation = (
                "SpecDecoding metrics: "
                f"Mean acceptance length: {1 + now.accepted / now.steps:.2f}, "
                f"Accepted throughput: {now.accepted / seconds:.2f} tokens/s, "
                f"Drafted throughput: {drafted / seconds:.2f} tokens/s, "
                f"Accepted: {now.accepted} tokens, Drafted: {drafted} tokens, "
                f"Per-position acceptance rate: {shares}, "
                f"Avg Draft acceptance rate: {100 * now.accepted / drafted:.1f}%"
            )
            lines.append(("metrics.py:120", speculation))
        return lines

    def _fresh(self) -> _Interval:
        return _Interval(per_position=[0] * self._args.draft_tokens)

    def _set_load(self, running: int, waiting: int, tokens: int) -> None:
        self._load = (running, waiting, tokens)
        metrics, labels = self._metrics, self._labels
        metrics.gauge("vllm:num_requests_running", labels, running)
        metrics.gauge("vllm:num_requests_waiting", labels, waiting)
        metrics.gauge("vllm:kv_cache_usage_perc", labels, tokens / self._capacity)

    def _count_output(self, new: int, accepted: int | None) -> None:
        metrics, labels, interval = self._metrics, self._labels, self._interval
        metrics.count("vllm:generation_tokens_total", labels, new)
        interval.generated += new
        if accepted is None:
            return
        drafted = self._args.draft_tokens
        metrics.count("vllm:spec_decode_num_drafts_total", labels, 1)
        metrics.count("vllm:spec_decode_num_draft_tokens_total", labels, drafted)
        metrics.count("vllm:spec_decode_num_accepted_tokens_total", labels, accepted)
        interval.steps += 1
        interval.accepted += accepted
        for position in range(accepted):
            interval.per_position[position] += 1
            self._count_position(position, 1)

    def _count_position(self, position: int, amount: int) -> None:
        labels = {**self._labels, "position": str(position)}
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        self._metrics.count(name, labels, amount)

    def _count_finish(self, reason: str, amount: int) -> None:
        labels = {**self._labels, "finished_reason": reason}
        self._metrics.count("vllm:request_success_total", labels, amount)
