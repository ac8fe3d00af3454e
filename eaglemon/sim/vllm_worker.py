"""A worker of a simulated vLLM server: loads a rank's share and holds its GPU memory."""

import os
import signal
import socket
import time

from eaglemon.sim.console import VllmConsole, capture_bar, shard_bar
from eaglemon.sim.link import receive_blocking, send_blocking
from eaglemon.sim.memory import GIB, GpuMemory, OutOfMemoryError, register
from eaglemon.sim.models import weight_gb
from eaglemon.sim.process import set_title
from eaglemon.sim.settings import Settings
from eaglemon.sim.vllm_args import VllmArgs

_CONTEXT_GB, _GRAPH_GB, _DRAFT_GB, _ACTIVATION_GB = 0.5, 0.69, 1.6, 4.0
_KV_BYTES_PER_TOKEN = 131072
_GRAPH_SHAPES = 35
_FIRST_REQUEST_CRASH = """\
WorkerProc hit an exception.
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/vllm/v1/executor/multiproc_executor.py", line 1055, \
in _execute_worker_rpc
    output = func(*args, **kwargs)
RuntimeError: shape '[-1, 384]' is invalid for input of size 2048"""


class _WorkerFailed(Exception):  # noqa: N818 - an outcome; carries the last line
    """The worker cannot start."""


def gpus_of(args: VllmArgs, settings: Settings) -> tuple[int, ...]:
    """Return the host's index of each rank's GPU."""
    visible = settings.visible_gpus
    if visible is None:
        return tuple(range(args.tp))
    return tuple(visible[rank] if rank < len(visible) else rank for rank in range(args.tp))


def run_worker(args: VllmArgs, settings: Settings, rank: int, sock: socket.socket) -> int:
    """Be ``VLLM::Worker_TPn``; returns its exit status."""
    # A worker leaves when its engine does; signals to the whole group are the engine's to answer.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    name = f"Worker_TP{rank}" if args.tp > 1 else "Worker"
    title = f"{settings.environ.get('VLLM_PROCESS_NAME_PREFIX', 'VLLM')}::{name}"
    set_title([title], name=title, blank_environment=True)
    register(settings.folder)
    gpus = gpus_of(args, settings)
    console = VllmConsole(settings, name)
    memory = GpuMemory(settings.folder, gpus[rank], gpus if rank == 0 else ())
    began = time.monotonic()
    try:
        tokens = _Start(args, settings, console, memory, rank, sock).run()
    except (_WorkerFailed, OutOfMemoryError) as failure:
        text = str(failure)
        if isinstance(failure, OutOfMemoryError):
            text = f"torch.OutOfMemoryError: {_cuda_oom(failure.wanted_bytes, memory)}"
        console.log("multiproc_executor.py:947", "WorkerProc failed to start.", "ERROR")
        console.log("multiproc_executor.py:947", "Traceback (most recent call last):", "ERROR")
        console.log("multiproc_executor.py:947", text, "ERROR")
        return 1
    send_blocking(sock, {"tokens": tokens, "seconds": time.monotonic() - began})
    while (message := receive_blocking(sock)) is not None:
        if message.get("crash"):
            for line in _FIRST_REQUEST_CRASH.splitlines():
                console.log("multiproc_executor.py:1063", line, "ERROR")
            return 1
        memory.busy(91 if message.get("busy") else 0)
    console.log("multiproc_executor.py:843", "Parent process exited, terminating worker queues")
    return 0


class _Start:
    def __init__(  # noqa: PLR0917 - private, called once
        self,
        args: VllmArgs,
        settings: Settings,
        console: VllmConsole,
        memory: GpuMemory,
        rank: int,
        sock: socket.socket,
    ) -> None:
        self._args = args
        self._settings = settings
        self._console = console
        self._memory = memory
        self._rank = rank
        self._sock = sock

    def run(self) -> int:
        """Start up and return how many tokens the KV cache holds."""
        args, log, memory = self._args, self._console.log, self._memory
        total = memory.total_bytes / GIB
        self._settings.sleep(0.8)
        log(
            "parallel_state.py:1906",
            f"world_size={args.tp} rank={self._rank} local_rank={self._rank} "
            "distributed_init_method=tcp://127.0.0.1:35583 backend=nccl",
        )
        self._settings.sleep(0.2 * args.tp)
        log(
            "parallel_state.py:2350",
            f"rank {self._rank} in world size {args.tp} is assigned as DP rank 0, PP rank 0, "
            f"PCP rank 0, TP rank {self._rank}, ETP rank 0, EP rank N/A, EPLB rank N/A",
        )
        wanted = args.memory_utilization * total
        if memory.free_gb() < wanted:
            raise _WorkerFailed(
                f"ValueError: Free memory on device cuda:{self._rank} ({memory.free_gb():.2f}/"
                f"{total:.2f} GiB) on startup is less than desired GPU memory utilization "
                f"({args.memory_utilization}, {wanted:.2f} GiB). Decrease GPU memory utilization "
                "or reduce GPU memory used by other processes."
            )
        memory.grow(int(_CONTEXT_GB * GIB))
        target_gb = min(args.weight_gb, 0.8 * wanted)
        log("gpu_model_runner.py:5011", f"Starting to load model {args.model}...")
        self._load(target_gb, shards=max(2, round(target_gb * args.tp / 5)), seconds=1.5)
        held = target_gb
        if args.draft:
            log("gpu_model_runner.py:5036", "Loading drafter model...")
            draft_gb = min(_DRAFT_GB, weight_gb(args.draft)) / args.tp
            self._load(draft_gb, shards=1, seconds=0.3)
            held += draft_gb
            log(
                "llm_base_proposer.py:1440",
                "Detected EAGLE model without its own embed_tokens in the checkpoint. Sharing "
                "target model embedding weights with the draft model.",
            )
        log(
            "gpu_model_runner.py:5112",
            f"Model loading took {held:.2f} GiB memory and {1.8 / self._settings.speed:.6f} "
            "seconds",
        )
        if not args.eager:
            self._compile("backbone", 1.0)
            if args.draft:
                self._compile("eagle_head", 0.3)
        return self._kv_cache_and_graphs(wanted - held - _CONTEXT_GB - _ACTIVATION_GB)

    def _load(self, gb: float, *, shards: int, seconds: float) -> None:
        if "slow-load" in self._settings.faults:
            seconds *= 10
        began = time.monotonic()
        self._memory.busy(6)
        if self._rank:
            self._settings.sleep(seconds)
            self._memory.grow(int(gb * GIB))
        else:
            title = "Loading safetensors checkpoint shards"
            for _ in shard_bar(self._console.bars, title, shards, seconds, end="\n\n"):
                self._memory.grow(int(gb / shards * GIB))
        self._memory.busy(0)
        self._console.log(
            "default_loader.py:501",
            f"Loading weights took {time.monotonic() - began:.2f} seconds",
        )

    def _compile(self, part: str, seconds: float) -> None:
        began = time.monotonic()
        log = self._console.log
        log("backends.py:1190", f"[{part}] Starting torch.compile")
        self._settings.sleep(seconds / 3)
        spent = time.monotonic() - began
        log("backends.py:1148", f"[{part}] Dynamo bytecode transform time: {spent:.2f} s")
        if "stall" in self._settings.faults:
            signal.pause()
        self._settings.sleep(seconds * 2 / 3)
        spent = time.monotonic() - began
        log(
            "backends.py:393",
            f"[{part}] Compiling a graph for compile range (1, 8192) takes {spent:.2f} s",
        )
        log("monitor.py:53", f"[{part}] torch.compile took {spent:.2f} s in total")

    def _kv_cache_and_graphs(self, pool_gb: float) -> int:
        args, log, memory = self._args, self._console.log, self._memory
        log("gpu_worker.py:508", f"Available KV cache memory: {pool_gb:.2f} GiB")
        need_gb = args.max_model_len * _KV_BYTES_PER_TOKEN / GIB
        if pool_gb < need_gb:
            raise _WorkerFailed(
                "ValueError: To serve at least one request with the model's max seq len "
                f"({args.max_model_len}), ({need_gb:.2f} GiB KV cache is needed, which is larger "
                f"than the available KV cache memory ({pool_gb:.2f} GiB). Try increasing "
                "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the "
                "engine."
            )
        self._settings.sleep(0.3)
        memory.grow(int(pool_gb * GIB))
        tokens = int(pool_gb * GIB / _KV_BYTES_PER_TOKEN)
        send_blocking(self._sock, {"tokens": tokens})
        if not args.eager:
            began = time.monotonic()
            memory.busy(30)
            for stage, seconds in (("mixed prefill-decode, PIECEWISE", 0.8), ("decode, FULL", 0.6)):
                titles = [f"Capturing CUDA graphs ({stage})"] * _GRAPH_SHAPES
                if self._rank:
                    self._settings.sleep(seconds)
                    continue
                for done in capture_bar(self._console.bars, titles, seconds, plain_start=False):
                    if "oom" in self._settings.faults and done > _GRAPH_SHAPES // 2:
                        self._console.bars.write("\n")
                        raise OutOfMemoryError(2 * GIB, GIB // 4)
            memory.grow(int(_GRAPH_GB * GIB))
            memory.busy(0)
            log(
                "gpu_model_runner.py:6133",
                f"Graph capturing finished in {time.monotonic() - began:.0f} secs, took "
                f"{_GRAPH_GB:.2f} GiB",
            )
        return tokens


def _cuda_oom(wanted_bytes: int, memory: GpuMemory) -> str:
    return (
        f"CUDA out of memory. Tried to allocate {wanted_bytes / GIB:.2f} GiB. GPU 0 has a total "
        f"capacity of {memory.total_bytes / GIB:.2f} GiB of which 0.25 GiB is free. Process "
        f"{os.getpid()} has {memory.held_bytes / GIB:.2f} GiB memory in use."
    )
