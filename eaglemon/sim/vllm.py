"""The API server of a simulated vLLM: arguments, port, engine process, HTTP, and its end."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time

from eaglemon.sim.console import VllmConsole
from eaglemon.sim.http import HttpServer
from eaglemon.sim.link import Channel, Front, Message, receive_blocking
from eaglemon.sim.memory import register
from eaglemon.sim.process import fork_child, set_title
from eaglemon.sim.settings import Settings, read_settings
from eaglemon.sim.vllm_args import VERSION, ConfigFailed, VllmArgs, parse
from eaglemon.sim.vllm_core import run_core
from eaglemon.sim.vllm_http import DEAD, VllmHttp

_PORT_TRACEBACK = """\
Traceback (most recent call last):
  File "/opt/venv/bin/vllm", line 8, in <module>
    sys.exit(main())
  File "/opt/venv/lib/python3.11/site-packages/vllm/entrypoints/launchers/launcher.py", line 348, \
in create_server_socket
    sock.bind(addr)
OSError: [Errno 98] Address already in use"""
_STATS_EVERY_S = 10.0
_DEAD_FOR_S = 2.0
"""How long a server whose engine died still answers 503."""


def main(argv: list[str] | None = None) -> int:
    """Run the server; returns its exit status."""
    settings = read_settings()
    set_title(_own_argv(), name="vllm")
    register(settings.folder)
    # While it starts, the real server does not reliably end on SIGTERM either.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    console = VllmConsole(settings, "APIServer")
    settings.sleep(0.8)
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
    except ConfigFailed as failure:
        console.line("Traceback (most recent call last):")
        console.line('  File "/opt/venv/bin/vllm", line 8, in <module>\n    sys.exit(main())')
        console.line(str(failure))
        return 1
    return _Server(args, settings, console).run()


class _Server:
    def __init__(self, args: VllmArgs, settings: Settings, console: VllmConsole) -> None:
        self._args = args
        self._settings = settings
        self._console = console
        self._core = 0

    def run(self) -> int:
        args, log = self._args, self._console.log
        for text in (
            "",
            "       █     █     █▄   ▄█",
            f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {VERSION}",
            f"  █▄█▀ █     █     █     █  model   {args.model}",
            "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
            "",
        ):
            log("api_utils.py:347", text)
        log("api_utils.py:286", f"non-default args: {args.given}")
        listener = self._bind()
        if listener is None:
            self._console.line(_PORT_TRACEBACK)
            return 1
        with listener:
            self._settings.sleep(0.3)
            log("model.py:733", f"Resolved architecture: {args.architecture}")
            log("model.py:2152", f"Using max model len {args.max_model_len}")
            if args.draft:
                log("model.py:733", "Resolved architecture: LlamaForCausalLMEagle3")
                log("model.py:2152", f"Using max model len {args.max_model_len}")
            return self._start(listener)

    def _bind(self) -> socket.socket | None:
        """Bind the port without listening: connections are refused until the server is up."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if "bind" in self._settings.faults:
                raise OSError(98, "Address already in use")
            listener.bind((self._args.host or "0.0.0.0", self._args.port))  # noqa: S104 - vLLM's
        except OSError:
            listener.close()
            return None
        return listener

    def _start(self, listener: socket.socket) -> int:
        ours, theirs = socket.socketpair()

        def body() -> int:
            ours.close()
            listener.close()
            return run_core(self._args, self._settings, theirs)

        self._core = fork_child(body)
        theirs.close()
        with ours:
            message = receive_blocking(ours)
            loaded = message.get("loaded") if message else None
            if not isinstance(loaded, dict):
                os.waitpid(self._core, 0)
                self._console.line(
                    "RuntimeError: Engine core initialization failed. See root cause above. "
                    "Failed core proc(s): {'EngineCore': 1}"
                )
                return 1
            return asyncio.run(self._serve(listener, ours, loaded))

    async def _serve(self, listener: socket.socket, ours: socket.socket, loaded: Message) -> int:
        args, console = self._args, self._console
        http = VllmHttp(args, self._settings, console, loaded)
        front = Front(await Channel.open(ours), http.on_message)
        http.front = front
        server = HttpServer(http.handle, http.on_answer)
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        ends = [signal.SIGINT]
        if "ignore-term" not in self._settings.faults:
            ends.append(signal.SIGTERM)
        for number in ends:
            loop.add_signal_handler(number, stopping.set)
        console.log("entry.py:136", "Supported tasks: ['generate']")
        host = args.host or "0.0.0.0"  # noqa: S104 - as the engine prints it
        console.log("entry.py:140", f"Starting vLLM server on http://{host}:{args.port}")
        console.log("launcher.py:186", "Available routes are:")
        for route in (
            "/health, Methods: GET",
            "/metrics, Methods: GET",
            "/v1/models, Methods: GET",
        ):
            console.log("launcher.py:195", f"Route: {route}")
        console.http(f"Started server process [{os.getpid()}]")
        console.http("Waiting for application startup.")
        await server.start_socket(listener)
        console.http("Application startup complete.")
        listening = loop.create_task(front.run())
        waiting = loop.create_task(stopping.wait())
        reporting = loop.create_task(self._report(http))
        try:
            await asyncio.wait({listening, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.is_set():
                await self._stop(http, front)
            else:
                await self._engine_died(http)
            await self._close(server)
        finally:
            for task in (listening, waiting, reporting):
                task.cancel()
            await asyncio.gather(listening, waiting, reporting, return_exceptions=True)
            await server.close()
        return 0

    async def _report(self, http: VllmHttp) -> None:
        every = float(self._settings.environ.get("VLLM_LOG_STATS_INTERVAL", _STATS_EVERY_S))
        while self._args.log_stats:
            await asyncio.sleep(every)
            http.log_stats(every)

    async def _stop(self, http: VllmHttp, front: Front) -> None:
        log, limit = self._console.log, self._args.shutdown_timeout_s
        mode = "drain" if limit else "abort"
        http.stopping = True
        log("launcher.py:254", "[shutdown] API server: shutdown triggered")
        log(
            "launcher.py:270",
            f"[shutdown] API server: stopping engine client mode={mode} timeout={limit:.0f}s",
        )
        until = time.monotonic() + limit
        while front.pending and time.monotonic() < until:  # noqa: ASYNC110 - bounded
            await asyncio.sleep(0.05)
        log("utils.py:628", "[shutdown] Process manager: send sigterm to process EngineCore")
        self._signal_core(signal.SIGTERM)
        # However fast the clock goes, a busy machine takes its time for it.
        if not await self._core_gone(max(1.0, self._settings.real_s(1.0))):
            log(
                "utils.py:653",
                "[shutdown] Process manager: force killing remaining process EngineCore pid "
                f"{self._core}",
                "WARNING",
            )
            self._signal_core(signal.SIGKILL)
            await self._core_gone(self._settings.real_s(5.0))
        log("launcher.py:279", "[shutdown] API server: engine client stopped")
        log("launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")

    async def _engine_died(self, http: VllmHttp) -> None:
        http.dead = True
        for text in (
            "AsyncLLM output_handler failed.",
            "Traceback (most recent call last):",
            f"vllm.v1.engine.exceptions.EngineDeadError: {DEAD}",
        ):
            self._console.log("async_llm.py:906", text, "ERROR")
        await asyncio.sleep(self._settings.real_s(_DEAD_FOR_S))
        await self._core_gone(1.0)

    async def _close(self, server: HttpServer) -> None:
        console = self._console
        console.http("Shutting down")
        if server.streaming:
            # Without a limit: a client that stays keeps the process alive, whatever the signals.
            console.http("Waiting for connections to close. (CTRL+C to force quit)")
        await server.close(drain=True)
        console.http("Waiting for application shutdown.")
        console.http("Application shutdown complete.")
        console.http(f"Finished server process [{os.getpid()}]")

    def _signal_core(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._core, number)

    async def _core_gone(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while True:
            try:
                pid, _status = os.waitpid(self._core, os.WNOHANG)  # noqa: ASYNC222 - no wait
            except ChildProcessError:
                return True
            if pid:
                return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(0.02)


def _own_argv() -> list[str]:
    """Return the command line to show: that of ``vllm serve``, whatever started this."""
    return sys.orig_argv if sys.argv[0].endswith("vllm") else ["vllm", *sys.argv[2:]]


if __name__ == "__main__":
    sys.exit(main())
