"""The start-up of one simulated SGLang rank: its log lines, its time and its GPU memory.

Texts and order follow captured logs of SGLang 0.5.16 on an H200.
"""

import os
import signal
import time
from dataclasses import dataclass

from eaglemon.sim.console import SglangConsole, capture_bar, shard_bar
from eaglemon.sim.memory import GIB, GpuMemory, OutOfMemoryError
from eaglemon.sim.models import weight_gb
from eaglemon.sim.settings import Settings
from eaglemon.sim.sglang_args import SglangArgs

_PREFILL_TOKENS = (
    *range(4, 33, 4),
    *range(48, 257, 16),
    *range(288, 513, 32),
    *range(576, 1025, 64),
    *range(1280, 2049, 256),
)
_CONTEXT_GB, _GRAPH_GB = 0.52, 0.12
_DRAFT_GB = 1.6
_KV_BYTES_PER_TOKEN = 131072


class RankFailed(Exception):  # noqa: N818 - it is an outcome, told by the log it carries
    """The rank failed; carries the traceback as the engine prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a rank says when it is ready."""

    max_total_tokens: int
    weight_gb: float
    kv_gb: float
    graph_gb: float
    available_gb: float


class RankStart:
    """Walks one rank through its start-up."""

    def __init__(
        self, args: SglangArgs, settings: Settings, console: SglangConsole, memory: GpuMemory
    ) -> None:
        self._args = args
        self._settings = settings
        self._console = console
        self._memory = memory
        self._graph_gb = 0.0

    def run(self, rank: int) -> Loaded:
        """Start up; raises ``RankFailed``."""
        args, log = self._args, self._console.log
        self._settings.sleep(1.4 + 0.05 * rank)
        free_before = self._memory.free_gb()
        self._distributed_init()
        target_gb = min(args.weight_gb, 0.8 * args.mem_fraction * self._memory.total_bytes / GIB)
        shards = max(2, min(30, round(target_gb * args.tp / 5)))
        self._load(args.architecture, target_gb, shards=shards, seconds=2.6)
        if args.draft:
            log("SPECULATIVE_MOE_RUNNER_BACKEND is not initialized, using auto backend")
            log("SPECULATIVE_MOE_A2A_BACKEND is not initialized, using none backend")
            log("Init torch distributed begin.")
            log("Init torch distributed ends. elapsed=0.00 s, mem usage=0.00 GB")
            draft_gb = min(_DRAFT_GB, weight_gb(args.draft)) / args.tp
            self._load("LlamaForCausalLMEagle3", draft_gb, shards=1, seconds=0.5)
        tokens, kv_gb = self._kv_cache(free_before)
        self._capture_all()
        available = self._memory.free_gb()
        if rank == 0:
            log(
                f"max_total_num_tokens={tokens}, chunked_prefill_size=8192, "
                f"max_prefill_tokens=16384, max_running_requests={args.max_running}, "
                f"context_len={args.context_length}, available_gpu_mem={available:.2f} GB"
            )
        log(
            "Tree cache initialized: source=default impl=RadixCache hybrid_swa=False "
            "hybrid_ssm=False hierarchical=False streaming_wrapped=False"
        )
        return Loaded(
            max_total_tokens=tokens,
            weight_gb=target_gb,
            kv_gb=kv_gb,
            graph_gb=self._graph_gb,
            available_gb=available,
        )

    def _distributed_init(self) -> None:
        log = self._console.log
        log("Init torch distributed begin.")
        began = time.monotonic()
        if self._args.tp > 1:
            if self._console.prefix.endswith("TP0"):
                log("sglang is using nccl==2.28.9")
            self._settings.sleep(0.6)
        self._settings.sleep(0.3)
        self._take(_CONTEXT_GB, "init_torch_distributed")
        elapsed = time.monotonic() - began
        log(f"Init torch distributed ends. elapsed={elapsed:.2f} s, mem usage=0.09 GB")

    def _load(self, kind: str, gb: float, *, shards: int, seconds: float) -> None:
        log = self._console.log
        log(f"Load weight begin. avail mem={self._memory.free_gb():.2f} GB")
        began = time.monotonic()
        if "slow-load" in self._settings.faults:
            seconds *= 10
        self._memory.busy(8)
        if self._console.prefix in {"", " TP0"}:
            for _ in shard_bar(self._console, "Multi-thread loading shards", shards, seconds):
                self._take(gb / shards, "load_model")
        else:
            self._settings.sleep(seconds)
            self._take(gb, "load_model")
        self._memory.busy(0)
        log(
            f"Load weight end. elapsed={time.monotonic() - began:.2f} s, type={kind}, "
            f"avail mem={self._memory.free_gb():.2f} GB, mem usage={gb:.2f} GB."
        )

    def _kv_cache(self, free_before: float) -> tuple[int, float]:
        args = self._args
        pool_gb = self._memory.free_gb() - free_before * (1 - args.mem_fraction)
        if pool_gb <= 0.05:
            least = 1 - self._memory.free_gb() / free_before
            raise RankFailed(
                _traceback(
                    "model_runner.py",
                    "alloc_memory_pool",
                    "ValueError: Loaded weights leave no GPU memory for the KV cache under "
                    f"--mem-fraction-static={args.mem_fraction}. Raise --mem-fraction-static above "
                    f"{least + 0.001:.3f} (minimum viable = 1 - available/pre = {least:.4f}). "
                    "If using speculative decoding, draft weights are now counted.",
                )
            )
        draft_gb = pool_gb / 16 if args.draft else 0.0
        tokens = int((pool_gb - draft_gb) * GIB / _KV_BYTES_PER_TOKEN)
        for gb in (pool_gb - draft_gb, draft_gb):
            if gb <= 0:
                continue
            self._settings.sleep(0.2)
            self._take(gb, "alloc_memory_pool")
            self._console.log(
                f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, "
                f"K size: {gb / 2:.2f} GB, V size: {gb / 2:.2f} GB"
            )
            self._console.log(f"Memory pool end. avail mem={self._memory.free_gb():.2f} GB")
        return tokens, pool_gb

    def _capture_all(self) -> None:
        args = self._args
        self._memory.busy(35)
        sizes = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48)
        batches = tuple(size for size in sizes if size <= args.max_batch)
        self._capture("target prefill", _PREFILL_TOKENS, 1.8)
        if "stall" in self._settings.faults:
            signal.pause()
        if args.graphs and args.algorithm:
            self._capture("target verify", batches, 1.3, per_request=args.draft_tokens)
            self._capture("draft prefill", _PREFILL_TOKENS, 0.5)
            if args.steps > 1:
                self._capture("draft decode", batches, 0.8, per_request=args.topk)
            if args.attention != "fa3":
                self._capture("draft extend", batches, 0.5, per_request=args.draft_tokens)
        elif args.graphs:
            self._capture("target decode", batches, 1.2, per_request=1)
        self._memory.busy(0)

    def _capture(
        self, stage: str, shapes: tuple[int, ...], seconds: float, per_request: int | None = None
    ) -> None:
        console, memory = self._console, self._memory
        prefill = per_request is None
        kind = (
            f"backend=breakable, num_tokens={list(shapes)}"
            if prefill
            else f"backend=full, num_tokens_per_req={per_request}, bs={list(shapes)}"
        )
        free = memory.free_gb()
        console.log(f"Capture {stage} CUDA graph begin. {kind}, avail mem={free:.2f} GB")
        began = time.monotonic()
        word, unit = ("num tokens", "num_tokens") if prefill else ("batches", "bs")
        titles = [
            f"Capturing {word} ({unit}={shape} avail_mem={free:.2f} GB)"
            for shape in reversed(shapes)
        ]
        if console.prefix in {"", " TP0"}:
            for done in capture_bar(console, titles, seconds):
                if "oom" in self._settings.faults and not prefill and done > len(shapes) // 3:
                    self._out_of_memory(stage)
        else:
            self._settings.sleep(seconds)
        self._take(_GRAPH_GB, "init_device_graphs")
        self._graph_gb += _GRAPH_GB
        console.log(
            f"Capture {stage} CUDA graph end. elapsed={time.monotonic() - began:.2f} s, "
            f"mem usage={_GRAPH_GB:.2f} GB, avail mem={memory.free_gb():.2f} GB."
        )

    def _out_of_memory(self, stage: str) -> None:
        self._console.write("\n")
        text = _cuda_oom(2.0, self._memory, self._memory.free_gb() / 100)
        raise RankFailed(
            _traceback(
                "decode_cuda_graph_runner.py",
                "capture",
                f"Exception: Capture cuda graph failed: {text}\n"
                "Possible solutions:\n"
                "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
                "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)\n"
                "3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not "
                "recommended. Huge performance loss)\n"
                "Open an issue on GitHub "
                "https://github.com/sgl-project/sglang/issues/new/choose",
            )
        )

    def _take(self, gb: float, where: str) -> None:
        try:
            self._memory.grow(int(gb * GIB))
        except OutOfMemoryError as error:
            text = _cuda_oom(gb, self._memory, error.free_bytes / GIB)
            raise RankFailed(
                _traceback("model_runner.py", where, f"torch.OutOfMemoryError: {text}")
            ) from error


def _cuda_oom(wanted_gb: float, memory: GpuMemory, free_gb: float) -> str:
    total, held = memory.total_bytes / GIB, memory.held_bytes / GIB
    return (
        f"CUDA out of memory. Tried to allocate {wanted_gb:.2f} GiB. GPU 0 has a total capacity of "
        f"{total:.2f} GiB of which {free_gb:.2f} GiB is free. Process {os.getpid()} has "
        f"{held:.2f} GiB memory in use. See documentation for Memory Management"
    )


def _traceback(file: str, function: str, last: str) -> str:
    return (
        "Traceback (most recent call last):\n"
        '  File "/opt/sglang/sglang/srt/managers/scheduler.py", line 4623, in '
        "run_scheduler_process\n"
        "    scheduler = Scheduler(\n"
        f'  File "/opt/sglang/sglang/srt/model_executor/{file}", line 734, in {function}\n'
        f"{last}\n"
    )
