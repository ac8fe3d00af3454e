"""One simulated SGLang rank after its start-up: rank 0 decodes, the others hold their memory."""

import asyncio
import os
import signal
import socket
import time
from dataclasses import asdict, replace

from eaglemon.sim.console import SglangConsole
from eaglemon.sim.decode import Decoder, Drafting, Output, Request, forced_rates
from eaglemon.sim.link import Channel, Core, Message, send_blocking
from eaglemon.sim.memory import GpuMemory, register
from eaglemon.sim.process import die_with_parent, set_title
from eaglemon.sim.settings import Settings
from eaglemon.sim.sglang_args import SglangArgs
from eaglemon.sim.sglang_start import RankFailed, RankStart


def run_rank(
    args: SglangArgs, settings: Settings, rank: int, sock: socket.socket, parent: int
) -> int:
    """Be the scheduler process of ``rank``; returns its exit status."""
    die_with_parent(parent)
    suffix = f"_TP{rank}" if args.tp > 1 else ""
    set_title([f"sglang::scheduler{suffix}"], name="sglang::scheduler")
    register(settings.folder)
    console = SglangConsole(settings, f" TP{rank}" if args.tp > 1 else "")
    gpus = gpus_of(args, settings)
    memory = GpuMemory(settings.folder, gpus[rank], gpus if rank == 0 else ())
    try:
        loaded = RankStart(args, settings, console, memory).run(rank)
    except RankFailed as failure:
        _report(console, str(failure), parent)
        return 1
    send_blocking(sock, {"loaded": asdict(loaded)})
    if rank:
        while sock.recv(1):
            continue
        return 0
    scheduler = Scheduler(args, settings, console, memory)
    return asyncio.run(_serve(scheduler, settings, sock, parent))


def gpus_of(args: SglangArgs, settings: Settings) -> tuple[int, ...]:
    """Return the host's index of each rank's GPU."""
    visible = settings.visible_gpus
    chosen = [args.base_gpu + rank * args.gpu_step for rank in range(args.tp)]
    if visible is None:
        return tuple(chosen)
    return tuple(visible[index] if index < len(visible) else index for index in chosen)


def _report(console: SglangConsole, text: str, parent: int) -> None:
    console.log(f"Scheduler hit an exception: {text}")
    os.kill(parent, signal.SIGQUIT)
    # The parent kills this process; leaving first would look like another kind of end.
    signal.pause()


async def _serve(
    scheduler: "Scheduler", settings: Settings, sock: socket.socket, parent: int
) -> int:
    scheduler.channel = await Channel.open(sock)
    console = scheduler.console
    if "hang" in settings.faults:
        asyncio.get_running_loop().call_later(
            settings.real_s(6.0), os.kill, os.getpid(), signal.SIGSTOP
        )
    if "crash-ready" in settings.faults:
        asyncio.get_running_loop().call_later(
            settings.real_s(6.0), os.kill, os.getpid(), signal.SIGKILL
        )
    try:
        await scheduler.run()
    except RankFailed as failure:
        _report(console, str(failure), parent)
    finally:
        scheduler.channel.close()
    settings.sleep(1.0)
    console.line(
        "[rank0]:[W1129 14:38:58.199342952 ProcessGroupNCCL.cpp:1575] Warning: WARNING: "
        "destroy_process_group() was not called before program exit, which can leak resources."
    )
    return 0


class Scheduler(Core):
    """Decodes, and reports every 40 steps as SGLang does."""

    def __init__(
        self,
        args: SglangArgs,
        settings: Settings,
        console: SglangConsole,
        memory: GpuMemory,
    ) -> None:
        drafting = None
        if args.algorithm:
            wrong = settings.wrong_wiring or "wrong" in (args.draft or "")
            forced = float(settings.environ.get("SGLANG_SIMULATE_ACC_LEN") or 0)
            drafting = Drafting.of(
                replace(settings, accept_rates=forced_rates(forced)) if forced > 0 else settings,
                steps=args.steps,
                proposed=args.draft_tokens - 1,
                # An EAGLE-3 draft served as EAGLE guesses no better than a wrongly wired one.
                wrong=wrong or args.algorithm == "EAGLE",
            )
        super().__init__(Decoder(settings, drafting, args.max_running))
        self._args = args
        self._crash = "crash-first-request" in settings.faults
        self.console = console
        self._memory = memory
        self._since = time.monotonic()
        self._last = (0, 0, 0)
        self._lifetime = (0, 0)
        self._gauges: dict[str, float] = {}

    def on_prefill(self, requests: list[Request]) -> None:
        """Log the prefill, as the engine does for health checks too."""
        others = self.decoder.running - len(requests)
        tokens = sum(request.prompt_tokens for request in requests)
        self.console.log(
            f"Prefill batch, #new-seq: {len(requests)}, #new-token: {tokens}, #cached-token: 0, "
            f"token usage: 0.00, #running-req: {max(0, others)}, "
            f"#queue-req: {self.decoder.waiting}, "
            f"#pending-token: 0, cuda graph: True, input throughput (token/s): {tokens / 0.03:.2f}"
        )
        if self._crash and any(_is_traffic(request) for request in requests):
            raise RankFailed(
                "Traceback (most recent call last):\n"
                '  File "/opt/sglang/sglang/srt/managers/scheduler.py", line 4650, in '
                "run_scheduler_process\n"
                "    scheduler.event_loop_overlap()\n"
                "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
            )

    def on_step(self, outputs: list[Output]) -> None:
        """Every ``decode_log_interval`` steps: a line and the gauges."""
        totals = self.decoder.totals
        if totals.steps % self._args.decode_log_interval:
            return
        now = time.monotonic()
        generated, verifies, accepted = (
            new - old
            for new, old in zip(
                (totals.generated, totals.verifies, totals.accepted), self._last, strict=True
            )
        )
        rate = generated / max(now - self._since, 1e-6)
        self._since = now
        self._last = (totals.generated, totals.verifies, totals.accepted)
        speculation = ""
        self._gauges = {"gen_throughput": rate, "is_cuda_graph": 1.0}
        if self.decoder.drafting and verifies:
            length = 1 + accepted / verifies
            share = accepted / (verifies * self.decoder.drafting.proposed)
            speculation = f"accept len: {length:.2f}, accept rate: {share:.2f}, "
            self._gauges.update(spec_accept_length=length, spec_accept_rate=share)
            self._lifetime = (self._lifetime[0] + verifies, self._lifetime[1] + accepted)
        self.console.log(
            f"Decode batch, #running-req: {self.decoder.running}, #token: {self.decoder.tokens}, "
            f"token usage: 0.00, {speculation}cuda graph: True, gen throughput (token/s): "
            f"{rate:.2f}, #queue-req: {self.decoder.waiting}"
        )
        self._tell_gauges()

    def on_busy(self, *, busy: bool) -> None:
        """Show the load on the GPUs; an idle engine clears its throughput."""
        self._memory.busy(93 if busy else 0)
        if not busy:
            self._gauges = {"gen_throughput": 0.0, "is_cuda_graph": 0.0}
            self._tell_gauges()

    def answer(self, name: str) -> Message:
        """Answer ``state``, or reset the averages for ``flush``."""
        if name == "flush":
            self._lifetime = (0, 0)
        verifies, accepted = self._lifetime
        return {
            "told": name,
            "avg_spec_accept_length": 1 + accepted / verifies if verifies else None,
            "last_gen_throughput": self._gauges.get("gen_throughput", 0.0),
            "running": self.decoder.running,
            "waiting": self.decoder.waiting,
            "tokens": self.decoder.tokens,
        }

    def _tell_gauges(self) -> None:
        self.channel.send(
            {
                "gauges": {
                    "num_running_reqs": float(self.decoder.running),
                    "num_queue_reqs": float(self.decoder.waiting),
                    "num_used_tokens": float(self.decoder.tokens),
                    **self._gauges,
                }
            }
        )


def _is_traffic(request: Request) -> bool:
    return not request.id.startswith(("HEALTH_CHECK", "WARM_UP"))
