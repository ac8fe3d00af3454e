"""The engine process of a simulated vLLM server: loads through its workers, then decodes."""

import asyncio
import contextlib
import os
import signal
import socket

from eaglemon.sim.console import VllmConsole
from eaglemon.sim.decode import Decoder, Drafting, Request
from eaglemon.sim.link import Channel, Core, receive_blocking, send_blocking
from eaglemon.sim.memory import register
from eaglemon.sim.process import fork_child, is_alive, set_title
from eaglemon.sim.settings import Settings
from eaglemon.sim.vllm_args import VERSION, VllmArgs
from eaglemon.sim.vllm_worker import run_worker

_FATAL = """\
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/vllm/v1/engine/core.py", line 1496, \
in run_engine_core
    engine_core.run_busy_loop()
RuntimeError: """
_HANG_AFTER_S, _WATCH_S = 6.0, 0.2


class _EngineFailed(Exception):  # noqa: N818 - an outcome; carries the last line
    """The engine met a fatal error."""


def run_core(args: VllmArgs, settings: Settings, sock: socket.socket) -> int:
    """Be ``VLLM::EngineCore``; returns its exit status."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    prefix = settings.environ.get("VLLM_PROCESS_NAME_PREFIX", "VLLM")
    title = f"{prefix}::EngineCore"
    set_title([title], name=title, blank_environment=True)
    register(settings.folder)
    console = VllmConsole(settings, "EngineCore")
    settings.sleep(1.0)
    spec = "None"
    if args.draft_tokens:
        spec = (
            f"SpeculativeConfig(method='{args.method}', model='{args.draft}', "
            f"num_spec_tokens={args.draft_tokens})"
        )
    console.log(
        "core.py:133",
        f"Initializing a V1 LLM engine (v{VERSION}) with config: model='{args.model}', "
        f"speculative_config={spec}, tensor_parallel_size={args.tp}",
    )
    workers, socks = _start_workers(args, settings, sock)
    sized = [receive_blocking(one) for one in socks]
    if None not in sized:
        tokens = int(str((sized[0] or {})["tokens"]))
        console.log(
            "kv_cache_utils.py:2327",
            f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for "
            f"{args.max_model_len:,} tokens per request: {tokens / args.max_model_len:.2f}x",
        )
    loaded = [receive_blocking(one) for one in socks] if None not in sized else [None]
    if None in loaded:
        console.log("core.py:1499", "EngineCore failed to start.", "ERROR")
        console.log(
            "core.py:1499",
            "Exception: WorkerProc initialization failed due to an exception in a background "
            "process. See stack trace for root cause.",
            "ERROR",
        )
        _end_workers(workers)
        return 1
    facts = loaded[0] or {}
    console.log(
        "core.py:402",
        f"init engine (profile, create kv cache, warmup model) took {facts['seconds']:.2f} s",
    )
    send_blocking(sock, {"loaded": facts})
    engine = _Engine(args, settings, console, socks[0])
    try:
        return asyncio.run(_serve(engine, settings, sock, workers))
    finally:
        for one in socks:
            one.close()
        _end_workers(workers)


def _start_workers(
    args: VllmArgs, settings: Settings, front: socket.socket
) -> tuple[list[int], list[socket.socket]]:
    workers: list[int] = []
    socks: list[socket.socket] = []
    for rank in range(args.tp):
        mine, theirs = socket.socketpair()

        def body(rank: int = rank, sock: socket.socket = theirs, own: socket.socket = mine) -> int:
            # A worker must not keep the engine's ends open: their closing tells of its death.
            for other in (front, own, *socks):
                other.close()
            return run_worker(args, settings, rank, sock)

        workers.append(fork_child(body))
        socks.append(mine)
        theirs.close()
    return workers, socks


def _end_workers(workers: list[int]) -> None:
    for worker in workers:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)


async def _serve(
    engine: "_Engine", settings: Settings, sock: socket.socket, workers: list[int]
) -> int:
    engine.channel = await Channel.open(sock)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    if "ignore-term" not in settings.faults:
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
    if "hang" in settings.faults:
        loop.call_later(settings.real_s(_HANG_AFTER_S), os.kill, os.getpid(), signal.SIGSTOP)
    if "crash-ready" in settings.faults:
        loop.call_later(settings.real_s(_HANG_AFTER_S), os.kill, workers[0], signal.SIGKILL)
    tasks = [
        loop.create_task(_decode(engine, stopping)),
        loop.create_task(_watch(engine.console, workers)),
        loop.create_task(stopping.wait()),
    ]
    try:
        done, _pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if stopping.is_set():
            engine.console.log(
                "core.py:1454", "[shutdown] EngineCore: trigger received signal=SIGTERM"
            )
    except _EngineFailed as failure:
        engine.console.log("core.py:1512", "EngineCore encountered a fatal error.", "ERROR")
        for line in f"{_FATAL}{failure}".splitlines():
            engine.console.log("core.py:1512", line, "ERROR")
        return 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        engine.channel.close()
    return 0


async def _decode(engine: "_Engine", stopping: asyncio.Event) -> None:
    await engine.run()
    if engine.orphaned:
        # Without its API server the engine lives on and keeps its memory, until it is signalled.
        await stopping.wait()


async def _watch(console: VllmConsole, workers: list[int]) -> None:
    while all(is_alive(worker, None) for worker in workers):  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(_WATCH_S)
    dead = next(rank for rank, worker in enumerate(workers) if not is_alive(worker, None))
    console.log(
        "multiproc_executor.py:315",
        f"Worker proc VllmWorker-{dead} died unexpectedly (exit code: None), shutting down "
        "executor.",
        "ERROR",
    )
    raise _EngineFailed("Executor failed.")


class _Engine(Core):
    def __init__(
        self, args: VllmArgs, settings: Settings, console: VllmConsole, worker: socket.socket
    ) -> None:
        drafting = None
        if args.draft_tokens:
            drafting = Drafting.of(
                settings,
                steps=args.draft_tokens,
                proposed=args.draft_tokens,
                wrong=settings.wrong_wiring or "wrong" in (args.draft or ""),
            )
        super().__init__(Decoder(settings, drafting, args.max_num_seqs))
        self.console = console
        self._worker = worker
        self._crash = "crash-first-request" in settings.faults

    def on_prefill(self, requests: list[Request]) -> None:
        if self._crash and requests:
            send_blocking(self._worker, {"crash": True})
            # The worker's account of it comes first in the log; its end closes the socket.
            receive_blocking(self._worker)
            raise _EngineFailed("Worker failed with error, please check the stack trace above")

    def on_busy(self, *, busy: bool) -> None:
        send_blocking(self._worker, {"busy": busy})
        if not busy:
            self.channel.send({"load": [0, 0, 0]})
