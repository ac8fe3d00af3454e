"""The Prometheus metrics of a simulated SGLang server: real names, labels and update rules."""

import time
from datetime import UTC, datetime

from eaglemon.sim.link import Message
from eaglemon.sim.prometheus import Metrics
from eaglemon.sim.sglang_answers import Generation
from eaglemon.sim.sglang_args import VERSION, SglangArgs

_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_E2E = (*_TTFT, 600, 1200, 1800, 2400)
_ITL = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1),
    *(0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8),
)
_TOKENS = (100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000)
_GAUGES_AT_REST = (
    *("num_running_reqs", "num_queue_reqs", "num_grammar_queue_reqs", "gen_throughput"),
    *("cache_hit_rate", "token_usage", "num_used_tokens", "kv_used_tokens", "utilization"),
    *("spec_accept_length", "spec_accept_rate", "is_cuda_graph"),
)


class SglangMetrics:
    """Gauges follow the scheduler's reports; token counters grow when a request finishes."""

    def __init__(self, args: SglangArgs, loaded: Message) -> None:
        self._args = args
        self._loaded = loaded
        self._metrics = Metrics()
        self._tokenizer = {"engine_type": "unified", "model_name": args.served_name}
        self._scheduler = {
            **self._tokenizer,
            "moe_ep_rank": "0",
            "pp_rank": "0",
            "tp_rank": "0",
        }
        capacity = float(str(loaded["max_total_tokens"]))
        fixed = {
            "max_total_num_tokens": capacity,
            "engine_startup_time": 0.0,
            "engine_load_weights_time": 0.0,
            "page_size": 1.0,
            "num_pages": capacity,
            "context_len": float(args.context_length),
            "startup_available_gpu_memory_gb": float(str(loaded["available_gb"])),
            "kv_available_tokens": capacity,
            "spec_num_steps": float(args.steps),
            "spec_num_draft_tokens": float(args.draft_tokens),
        }
        self.set_gauges(dict.fromkeys(_GAUGES_AT_REST, 0.0) | fixed)

    def set_gauges(self, gauges: dict[str, float]) -> None:
        """Take the scheduler's figures."""
        for name, value in gauges.items():
            self._metrics.gauge(f"sglang:{name}", self._scheduler, value)
        used = gauges.get("num_used_tokens")
        if used is not None:
            share = used / float(str(self._loaded["max_total_tokens"]))
            self._metrics.gauge("sglang:token_usage", self._scheduler, share)

    def answered(self, method: str, path: str, status: int) -> None:
        """Count an HTTP answer."""
        where = {"endpoint": path, "method": method}
        self._metrics.count("sglang:http_requests_total", where, 1)
        self._metrics.count("sglang:http_responses_total", {**where, "status_code": str(status)}, 1)

    def chunk(self, since: float, tokens: int, *, first: bool) -> None:
        """Count the tokens of one streamed chunk that were waited for since then."""
        waited = time.time() - since
        if first:
            self._metrics.observe(
                "sglang:time_to_first_token_seconds", self._tokenizer, _TTFT, waited
            )
        elif tokens:
            each = [waited / tokens] * tokens
            self._metrics.observe(
                "sglang:inter_token_latency_seconds", self._tokenizer, _ITL, *each
            )

    def finished(self, generation: Generation) -> None:
        """Count a finished request: the only moment its tokens and verify steps are added."""
        metrics, labels = self._metrics, self._tokenizer
        metrics.count("sglang:prompt_tokens_total", labels, generation.prompt_tokens)
        metrics.count("sglang:generation_tokens_total", labels, generation.tokens)
        if generation.proposed:
            metrics.count("sglang:spec_verify_calls_total", labels, generation.verifies)
        metrics.count("sglang:num_requests_total", labels, 1)
        metrics.observe(
            "sglang:e2e_request_latency_seconds", labels, _E2E, time.time() - generation.received
        )
        metrics.observe("sglang:prompt_tokens_histogram", labels, _TOKENS, generation.prompt_tokens)
        metrics.observe("sglang:generation_tokens_histogram", labels, _TOKENS, generation.tokens)

    def render(self) -> bytes:
        """Return the text of ``/metrics``."""
        return self._metrics.render()

    def loads(self, state: Message) -> dict[str, object]:
        """Return ``/v1/loads``."""
        gauge = {
            name: self._metrics.value(f"sglang:{name}", self._scheduler)
            for name in ("token_usage", "gen_throughput", "spec_accept_rate")
        }
        load: dict[str, object] = {
            "timestamp": time.time(),
            "dp_rank": 0,
            "num_running_reqs": state["running"],
            "num_waiting_reqs": state["waiting"],
            "num_waiting_uncached_tokens": 0,
            "num_used_tokens": state["tokens"],
            "num_total_tokens": state["tokens"],
            "max_total_num_tokens": self._loaded["max_total_tokens"],
            "max_running_requests": self._args.max_running,
            "token_usage": gauge["token_usage"],
            "gen_throughput": gauge["gen_throughput"],
            "cache_hit_rate": 0.0,
            "utilization": 0.0,
            "memory": {
                "weight_gb": self._loaded["weight_gb"],
                "kv_cache_gb": self._loaded["kv_gb"],
                "graph_gb": self._loaded["graph_gb"],
                "token_capacity": self._loaded["max_total_tokens"],
            },
        }
        if state["avg_spec_accept_length"] is not None:
            load["speculative"] = {
                "accept_length": state["avg_spec_accept_length"],
                "accept_rate": gauge["spec_accept_rate"],
            }
        load["queues"] = {"waiting": state["waiting"], "grammar": 0, "paused": 0, "retracted": 0}
        stamp = datetime.now(UTC).isoformat()
        return {"timestamp": stamp, "version": VERSION, "loads": [load]}
