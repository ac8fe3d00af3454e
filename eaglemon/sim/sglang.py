"""The main process of a simulated SGLang server: arguments, children, HTTP, and its end."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from types import FrameType
from typing import Never

from eaglemon.sim.console import SglangConsole
from eaglemon.sim.http import HttpServer
from eaglemon.sim.link import Channel, Front, Message, receive_blocking
from eaglemon.sim.memory import register
from eaglemon.sim.process import (
    die_with_parent,
    fork_child,
    is_alive,
    kill_tree,
    set_title,
)
from eaglemon.sim.settings import Settings, read_settings
from eaglemon.sim.sglang_args import SglangArgs, StartError, resolve
from eaglemon.sim.sglang_http import SglangHttp
from eaglemon.sim.sglang_scheduler import run_rank

_BANNER = """\
/opt/sglang/sglang/launch_server.py:56: UserWarning: 'python -m sglang.launch_server' is still \
supported, but 'sglang serve' is the recommended entrypoint.
  Example: sglang serve --model-path <model> [options]
  warnings.warn("""
_DRAIN_POLL_S, _WATCHDOG_S = 4.0, 1.0


class _ChildFailed(Exception):  # noqa: N818 - raised by SIGQUIT, which is how a rank reports
    """A rank reported a failure."""


def main(argv: list[str] | None = None) -> int:
    """Run the server; returns its exit status (or ends by SIGKILL, as SGLang does)."""
    settings = read_settings()
    console = SglangConsole(settings)
    register(settings.folder)
    if "ignore-term" in settings.faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings.sleep(0.5)
    console.line(_BANNER)
    settings.sleep(0.5)
    try:
        args = resolve(sys.argv[1:] if argv is None else argv, console)
    except StartError as error:
        console.line("Traceback (most recent call last):")
        console.line('  File "/opt/sglang/sglang/launch_server.py", line 68, in <module>')
        console.line("    server_args = prepare_server_args(sys.argv[1:])")
        console.line(str(error))
        return 1
    return _Server(args, settings, console).run()


class _Server:
    def __init__(self, args: SglangArgs, settings: Settings, console: SglangConsole) -> None:
        self._args = args
        self._settings = settings
        self._console = console
        self._ranks: list[int] = []
        self._children: list[int] = []

    def run(self) -> int:
        console = self._console
        shown = ", ".join(f"{name}={value!r}" for name, value in self._args.server_args().items())
        console.log("Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit")
        console.log(f"server_args=ServerArgs({shown})")
        console.log("Using default HuggingFace chat template with detected content format: string")
        signal.signal(signal.SIGQUIT, self._on_sigquit_in_launch)
        try:
            socks = self._start_children()
            loaded = [self._wait_loaded(rank, sock) for rank, sock in enumerate(socks)]
        except _ChildFailed:
            console.log("Received sigquit from a child process. It usually means the child failed.")
            self._kill_all()
        if None in loaded:
            return 1
        first = loaded[0] or {}
        return asyncio.run(self._serve(socks, first))

    def _start_children(self) -> list[socket.socket]:
        parent = os.getpid()
        ours: list[socket.socket] = []
        for rank in range(self._args.tp):
            mine, theirs = socket.socketpair()

            def body(rank: int = rank, sock: socket.socket = theirs) -> int:
                signal.signal(signal.SIGQUIT, signal.SIG_DFL)
                for other in ours:
                    other.close()
                return run_rank(self._args, self._settings, rank, sock, parent)

            ours.append(mine)
            self._ranks.append(fork_child(body))
            theirs.close()
        self._children = [*self._ranks, fork_child(lambda: self._detokenize(ours, parent))]
        return ours

    def _detokenize(self, socks: list[socket.socket], parent: int) -> int:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        die_with_parent(parent)
        set_title(["sglang::detokenizer"], name="sglang::detokenizer")
        register(self._settings.folder)
        for sock in socks:
            sock.close()
        while True:
            signal.pause()

    def _wait_loaded(self, rank: int, sock: socket.socket) -> Message | None:
        message = receive_blocking(sock)
        if message is None:
            _pid, status = os.waitpid(self._ranks[rank], 0)
            code = os.waitstatus_to_exitcode(status)
            self._console.line(
                "RuntimeError: Rank "
                f"{rank} scheduler died during initialization (exit code: {code}). If exit code is "
                "-9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to"
                " check."
            )
            return None
        found = message["loaded"]
        return found if isinstance(found, dict) else None

    def _on_sigquit_in_launch(self, _number: int, _frame: FrameType | None) -> None:
        raise _ChildFailed

    def _kill_all(self) -> Never:
        pid = os.getpid()
        self._console.log(
            f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}"
        )
        kill_tree(self._children)

    async def _serve(self, socks: list[socket.socket], loaded: Message) -> int:
        console, args = self._console, self._args
        ending = asyncio.Event()
        why: list[signal.Signals] = []
        loop = asyncio.get_running_loop()

        def end(number: signal.Signals) -> None:
            why.append(number)
            ending.set()

        signals = [signal.SIGINT, signal.SIGQUIT]
        if "ignore-term" not in self._settings.faults:
            signals.append(signal.SIGTERM)
        for one in signals:
            loop.add_signal_handler(one, end, one)
        http = SglangHttp(args, self._settings, console, loaded)
        front = Front(await Channel.open(socks[0]), http.on_message)
        http.front = front
        server = HttpServer(http.handle, http.on_answer)
        tasks = [loop.create_task(front.run()), loop.create_task(self._watch())]
        console.http(f"Started server process [{os.getpid()}]")
        console.http("Waiting for application startup.")
        console.log("Using fallback token IDs for yes/no (9693/2152)")
        console.http("Application startup complete.")
        try:
            if await self._open_port(server):
                warming = loop.create_task(http.warm_up())
                tasks.append(warming)
            await ending.wait()
            await self._end(why[0], http, server)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.close()
        return 0

    async def _open_port(self, server: HttpServer) -> bool:
        """Bind; a failure leaves the process alive with its memory, as SGLang does."""
        args, console = self._args, self._console
        try:
            if "bind" in self._settings.faults:
                raise OSError(98, "address already in use")
            await server.start(args.host, args.port)
        except OSError:
            console.http(
                f"[Errno 98] error while attempting to bind on address ('{args.host}', "
                f"{args.port}): address already in use",
                level="ERROR",
            )
            console.http("Waiting for application shutdown.")
            console.http("Application shutdown complete.")
            return False
        console.http(f"Uvicorn running on http://{args.host}:{args.port} (Press CTRL+C to quit)")
        return True

    async def _watch(self) -> None:
        """Notice a dead child, like SGLang's watchdog, and bring everything down."""
        names = [f"scheduler_{rank}" for rank in range(len(self._ranks))] + ["detokenizer"]
        while True:
            await asyncio.sleep(_WATCHDOG_S)
            for name, child in zip(names, self._children, strict=True):
                pid, status = os.waitpid(child, os.WNOHANG)  # noqa: ASYNC222 - does not wait
                code = os.waitstatus_to_exitcode(status) if pid else 0
                if pid and code:
                    self._console.log(
                        f"Subprocess {name} (pid={child}) crashed with exit code {code}. "
                        "Triggering SIGQUIT for cleanup..."
                    )
                    os.kill(os.getpid(), signal.SIGQUIT)
                if pid:
                    return

    async def _end(self, why: signal.Signals, http: SglangHttp, server: HttpServer) -> None:
        console, settings = self._console, self._settings
        if why == signal.SIGQUIT:
            console.log(
                "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
            )
            console.log("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
            await asyncio.sleep(settings.real_s(5.0))
            console.log("No live scheduler processes found; skipping py-spy and CUDA coredump.")
            self._kill_all()
        if why == signal.SIGINT:
            for text in (
                "Shutting down",
                "Waiting for application shutdown.",
                "Application shutdown complete.",
                f"Finished server process [{os.getpid()}]",
            ):
                console.http(text)
            console.log(
                f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=False, "
                f"pid={os.getpid()}"
            )
            for child in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            return
        console.log(
            "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
        )
        http.draining = True
        while True:
            await asyncio.sleep(settings.real_s(_DRAIN_POLL_S))
            left = http.front.pending if http.front else 0
            console.log(
                f"Gracefully exiting... Remaining number of requests {left}. "
                "Remaining requests remaining_rids=[]."
            )
            if not left:
                break
        if http.front:
            http.front.tell_end()
        await self._wait_first_rank(settings.real_s(15.0))
        await server.close()
        self._kill_all()

    async def _wait_first_rank(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not is_alive(self._ranks[0], None):
                return
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
