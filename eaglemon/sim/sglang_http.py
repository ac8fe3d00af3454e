"""The HTTP interface of a simulated SGLang server, with the fields of the captured answers."""

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator

from eaglemon.sim.asked import read_request
from eaglemon.sim.console import SglangConsole
from eaglemon.sim.decode import Request
from eaglemon.sim.http import Call, Reply
from eaglemon.sim.link import Front, Message
from eaglemon.sim.settings import Settings
from eaglemon.sim.sglang_answers import Generation, SglangAnswer
from eaglemon.sim.sglang_args import VERSION, SglangArgs
from eaglemon.sim.sglang_metrics import SglangMetrics
from eaglemon.sim.text import Answer, fingerprint, prompt_tokens

_HEALTH_LIMIT_S = 20.0
_OPEN = ("/health", "/health_generate", "/metrics", "/ping")


class SglangHttp:
    """Answers requests; ``front`` is set once the link to the scheduler is up."""

    def __init__(
        self, args: SglangArgs, settings: Settings, console: SglangConsole, loaded: Message
    ) -> None:
        self._args = args
        self._settings = settings
        self._console = console
        self._loaded = loaded
        self._metrics = SglangMetrics(args, loaded)
        self._numbers = itertools.count()
        self._heartbeat = time.time()
        self.front: Front | None = None
        self.starting = True
        self.draining = False

    def on_message(self, message: Message) -> None:
        """Take what the scheduler sends: a sign of life, and sometimes gauges."""
        self._heartbeat = time.time()
        gauges = message.get("gauges")
        if isinstance(gauges, dict):
            self._metrics.set_gauges(gauges)

    def on_answer(self, call: Call, status: int) -> None:
        """Write the access line."""
        self._metrics.answered(call.method, call.path, status)
        phrase = {200: "OK", 400: "Bad Request", 404: "Not Found", 401: "Unauthorized"}
        words = phrase.get(status, "Service Unavailable" if status == 503 else "Error")
        self._console.http(f'{call.client} - "{call.method} {call.path} HTTP/1.1" {status} {words}')

    async def warm_up(self) -> None:
        """Send the warm-up request and report readiness."""
        await asyncio.sleep(self._settings.real_s(0.6))
        self._console.http('127.0.0.1:44702 - "GET /model_info HTTP/1.1" 200 OK')
        await asyncio.sleep(self._settings.real_s(0.6))
        generation = self._submit("The capital city of France is", 8, prefix="WARM_UP")
        while not generation.done:
            await generation.next()
        self._console.http('127.0.0.1:44716 - "POST /generate HTTP/1.1" 200 OK')
        self._console.log("The server is fired up and ready to roll!")
        self.starting = False

    async def handle(self, call: Call) -> Reply:
        """Answer one request."""
        if not self._allowed(call):
            return Reply.of({"error": "Unauthorized"}, 401)
        route = f"{call.method} {call.path.replace('/get_', '/')}"
        match route:
            case "GET /health" | "GET /health_generate":
                return await self._health()
            case "GET /metrics" if self._args.metrics:
                return Reply(body=self._metrics.render(), content_type="text/plain; version=0.0.4")
            case "POST /generate" | "POST /v1/completions" | "POST /v1/chat/completions":
                return await self._generate(call)
            case "GET /flush_cache" | "POST /flush_cache":
                await self._ask("flush")
                return Reply(body=b"Cache flushed.\n", content_type="text/plain; charset=utf-8")
        return await self._info(route)

    def _allowed(self, call: Call) -> bool:
        key = self._args.api_key
        given = call.headers.get("authorization")
        return not key or call.path in _OPEN or given == f"Bearer {key}"

    async def _info(self, route: str) -> Reply:
        args = self._args
        match route:
            case "GET /ping":
                return Reply(content_type=None)
            case "GET /model_info":
                return Reply.of(
                    {
                        "model_path": args.model,
                        "tokenizer_path": args.model,
                        "is_generation": True,
                        "preferred_sampling_params": None,
                        "weight_version": "default",
                        "has_image_understanding": False,
                        "has_audio_understanding": False,
                        "model_type": "llama",
                        "architectures": [args.architecture],
                    }
                )
            case "GET /server_info":
                return Reply.of(self._server_info(await self._ask("state")))
            case "GET /v1/loads":
                return Reply.of(self._metrics.loads(await self._ask("state")))
            case "GET /v1/models":
                return Reply.of(
                    {
                        "object": "list",
                        "data": [
                            {
                                "id": args.served_name,
                                "object": "model",
                                "created": int(time.time()),
                                "owned_by": "sglang",
                                "root": args.served_name,
                                "parent": None,
                                "max_model_len": args.context_length,
                            }
                        ],
                    }
                )
        return Reply.of({"detail": "Not Found"}, 404)

    async def _ask(self, name: str) -> Message:
        if self.front is None:
            return {}
        return await self.front.ask(name)

    def _server_info(self, state: Message) -> dict[str, object]:
        internal = self._args.server_args()
        internal.update(
            last_gen_throughput=state["last_gen_throughput"],
            memory_usage={
                "weight": self._loaded["weight_gb"],
                "kvcache": self._loaded["kv_gb"],
                "token_capacity": self._loaded["max_total_tokens"],
                "graph": self._loaded["graph_gb"],
            },
            effective_max_running_requests_per_dp=self._args.max_running,
        )
        if state["avg_spec_accept_length"] is not None:
            internal["avg_spec_accept_length"] = state["avg_spec_accept_length"]
        return {
            **self._args.server_args(),
            "status": "ready",
            "max_total_num_tokens": self._loaded["max_total_tokens"],
            "max_req_input_len": self._args.context_length - 6,
            "internal_states": [internal],
            "version": VERSION,
            "kv_events": None,
        }

    async def _health(self) -> Reply:
        if self.starting or self.draining:
            return Reply(status=503, content_type=None)
        began = time.time()
        generation = self._submit("", 1, prefix="HEALTH_CHECK")
        # The engine looks once a second whether anything came back, so a good answer takes 1 s.
        while time.time() - began < _HEALTH_LIMIT_S:
            await asyncio.sleep(1.0)
            if self._heartbeat > began:
                if self.front:
                    self.front.drop(generation.id)
                return Reply(content_type=None)
        self._console.log(
            "Health check failed. Server couldn't get a response from detokenizer for last 20 "
            f"seconds. tic start time: {_clock(began)}. "
            f"last_heartbeat time: {_clock(self._heartbeat)}"
        )
        return Reply(status=503, content_type=None)

    def _submit(
        self,
        prompt: str,
        max_tokens: int,
        *,
        prefix: str = "",
        ignore_eos: bool = True,
        temperature: float = 0.0,
        length: int | None = None,
    ) -> Generation:
        if self.front is None:
            raise RuntimeError("the scheduler link is not up")
        mark = fingerprint(prompt)
        answer = Answer(mark)
        request = Request(
            id=f"{prefix}{uuid.uuid4().hex}",
            prompt_tokens=length or prompt_tokens(prompt),
            max_tokens=max_tokens,
            natural_length=1 << 30 if ignore_eos else answer.natural_length,
            seed=mark ^ self._settings.seed * 0x9E3779B1,
            temperature=temperature,
        )
        return Generation(
            id=request.id,
            prompt_tokens=request.prompt_tokens,
            answer=answer,
            inbox=self.front.submit(request),
            received=time.time(),
            proposed=max(0, self._args.draft_tokens - 1),
            histogram=[0] * (self._args.steps + 1),
        )

    async def _generate(self, call: Call) -> Reply:
        try:
            body = json.loads(call.body or b"{}")
        except ValueError:
            return Reply.of({"error": {"message": "Invalid JSON body."}}, 400)
        asked = read_request(call.path, body)
        if asked is None:
            message = "Either text, input_ids or input_embeds should be provided."
            self._console.log(f"[http_server] Error: {message}")
            return Reply.of({"error": {"message": message}}, 400)
        length = asked.prompt_length
        if length + 1 > self._args.context_length:
            message = (
                f"The input ({length} tokens) is longer than the model's context length "
                f"({self._args.context_length} tokens)."
            )
            self._console.log(f"[http_server] Error: {message}")
            return Reply.of({"error": {"message": message}}, 400)
        generation = self._submit(
            asked.prompt,
            min(asked.max_tokens, self._args.context_length - length),
            ignore_eos=asked.ignore_eos,
            temperature=asked.temperature,
            length=length,
        )
        writer = SglangAnswer(call.path, asked, generation, self._args)
        if asked.stream:
            return Reply(
                stream=self._stream(writer, generation),
                content_type="text/event-stream; charset=utf-8",
            )
        while not generation.done:
            await generation.next()
        self._metrics.finished(generation)
        return Reply.of(writer.whole())

    async def _stream(self, writer: SglangAnswer, generation: Generation) -> AsyncIterator[bytes]:
        try:
            for event in writer.opening():
                yield _event(event)
            before, at = 0, generation.received
            done = False
            while not done:
                new = await generation.next()
                done = generation.finish is not None
                self._metrics.chunk(at, new, first=not before)
                if done:
                    self._metrics.finished(generation)
                for event in writer.chunk(before):
                    yield _event(event)
                before, at = generation.tokens, time.time()
            yield b"data: [DONE]\n\n"
        finally:
            if self.front:
                self.front.drop(generation.id)


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
