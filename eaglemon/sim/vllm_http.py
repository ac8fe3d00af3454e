"""The HTTP interface of a simulated vLLM server, with the fields of the captured answers."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator

from eaglemon.sim.asked import Asked, read_request
from eaglemon.sim.console import VllmConsole
from eaglemon.sim.decode import Request
from eaglemon.sim.http import Call, Reply
from eaglemon.sim.link import Front, Message
from eaglemon.sim.settings import Settings
from eaglemon.sim.text import Answer, fingerprint
from eaglemon.sim.vllm_answers import Generation, VllmAnswer
from eaglemon.sim.vllm_args import VERSION, VllmArgs
from eaglemon.sim.vllm_metrics import VllmMetrics

_PHRASES = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class VllmHttp:
    """Answers requests; ``front`` is set once the link to the engine is up."""

    def __init__(
        self, args: VllmArgs, settings: Settings, console: VllmConsole, loaded: Message
    ) -> None:
        self._args = args
        self._settings = settings
        self._console = console
        self._metrics = VllmMetrics(args, int(str(loaded["tokens"])))
        self.front: Front | None = None
        self.dead = False
        self.stopping = False

    def on_message(self, message: Message) -> None:
        """Count what the engine did: vLLM's counters follow every step."""
        self._metrics.on_message(message)

    def on_answer(self, call: Call, status: int) -> None:
        """Write the access line."""
        self._metrics.answered(call.method, call.path, status)
        if call.path not in self._args.quiet_paths:
            words = _PHRASES.get(
                status, "Service Unavailable" if status == 503 else "Internal Server Error"
            )
            self._console.http(
                f'{call.client} - "{call.method} {call.path} HTTP/1.1" {status} {words}'
            )

    def log_stats(self, seconds: float) -> None:
        """Write the periodic lines: while busy, and once more after."""
        for place, text in self._metrics.stats_lines(seconds):
            self._console.log(place, text)

    async def handle(self, call: Call) -> Reply:
        """Answer one request."""
        key = self._args.api_key
        if (
            key
            and call.path.startswith(("/v1", "/v2", "/inference"))
            and call.headers.get("authorization") != f"Bearer {key}"
        ):
            return Reply.of({"error": "Unauthorized"}, 401)
        match f"{call.method} {call.path}":
            case "GET /health" | "GET /ping":
                return Reply(status=503 if self.dead else 200, content_type=None)
            case "GET /metrics":
                return Reply(body=self._metrics.render(), content_type="text/plain; version=1.0.0")
            case "POST /v1/completions" | "POST /v1/chat/completions":
                return await self._generate(call)
        return self._info(f"{call.method} {call.path}")

    def _info(self, route: str) -> Reply:
        args = self._args
        match route:
            case "GET /version":
                return Reply.of({"version": VERSION})
            case "GET /load":
                return Reply.of({"server_load": 0})
            case "GET /v1/models":
                permission = {
                    "id": f"modelperm-{uuid.uuid4().hex[:16]}",
                    "object": "model_permission",
                    "created": int(time.time()),
                    "allow_create_engine": False,
                    "allow_sampling": True,
                    "allow_logprobs": True,
                    "allow_search_indices": False,
                    "allow_view": True,
                    "allow_fine_tuning": False,
                    "organization": "*",
                    "group": None,
                    "is_blocking": False,
                }
                model = {
                    "id": args.served_name,
                    "object": "model",
                    "created": int(time.time()),
                    "owned_by": "vllm",
                    "root": args.model,
                    "parent": None,
                    "max_model_len": args.max_model_len,
                    "permission": [permission],
                }
                return Reply.of({"object": "list", "data": [model]})
        return Reply.of({"detail": "Not Found"}, 404)

    async def _generate(self, call: Call) -> Reply:
        try:
            body = json.loads(call.body or b"{}")
        except ValueError as error:
            return _error(f"1 validation error:\n  {error}", "Bad Request", 400)
        asked = read_request(call.path, body, default_tokens=512)
        refused = self._refusal(asked)
        if asked is None or refused is not None or self.front is None:
            return refused or _error(DEAD, "InternalServerError", 500)
        generation = self._submit(asked, self.front)
        writer = VllmAnswer(call.path, asked, generation, self._args)
        if asked.stream:
            return Reply(
                stream=self._stream(writer, generation),
                content_type="text/event-stream; charset=utf-8",
            )
        while not generation.done:
            await generation.next()
        if generation.failed:
            return _error(DEAD, "InternalServerError", 500)
        self._metrics.finished(generation)
        return Reply.of(writer.whole())

    def _refusal(self, asked: Asked | None) -> Reply | None:
        """Return the error for a request that cannot be served."""
        limit, name = self._args.max_model_len, self._args.served_name
        if asked is None:
            return _error("1 validation error:\n  Field required", "Bad Request", 400)
        if asked.model and asked.model != name:
            return _error(
                f"The model `{asked.model}` does not exist. Valid aliases: {name}.",
                "NotFoundError",
                404,
                param="model",
            )
        if asked.max_tokens > limit:
            return _error(
                f"max_tokens={asked.max_tokens} cannot be greater than max_model_len={limit}. "
                f"Please request fewer output tokens. (parameter=max_tokens, "
                f"value={asked.max_tokens})",
                "BadRequestError",
                400,
                param="max_tokens",
            )
        if self.dead:
            return _error(DEAD, "InternalServerError", 500)
        return None

    def _submit(self, asked: Asked, front: Front) -> Generation:
        mark = fingerprint(asked.prompt)
        answer = Answer(mark)
        request = Request(
            id=uuid.uuid4().hex[:16],
            prompt_tokens=asked.prompt_length,
            max_tokens=asked.max_tokens,
            natural_length=1 << 30 if asked.ignore_eos else answer.natural_length,
            seed=mark ^ self._settings.seed * 0x9E3779B1,
            temperature=asked.temperature,
        )
        self._metrics.prompted(asked.prompt_length)
        return Generation(
            id=request.id,
            prompt_tokens=asked.prompt_length,
            answer=answer,
            inbox=front.submit(request),
            received=time.monotonic(),
            draft_tokens=self._args.draft_tokens,
        )

    async def _stream(self, writer: VllmAnswer, generation: Generation) -> AsyncIterator[bytes]:
        try:
            for event in writer.opening():
                yield _event(event)
            before, at, done = 0, generation.received, False
            while not done:
                new = await generation.next()
                done = generation.done
                if generation.failed:
                    if self.stopping:
                        # The engine was ended under the stream: nothing more comes, and no error.
                        await asyncio.Event().wait()
                    yield _event(_error_body(DEAD, "InternalServerError", 500, None))
                    break
                self._metrics.chunk(time.monotonic() - at, first=not before)
                if new or done:
                    for event in writer.chunk(before):
                        yield _event(event)
                before, at = generation.tokens, time.monotonic()
            if not generation.failed:
                self._metrics.finished(generation)
            yield b"data: [DONE]\n\n"
        finally:
            if self.front:
                self.front.drop(generation.id)


def _event(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def _error_body(message: str, kind: str, code: int, param: str | None) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _error(message: str, kind: str, code: int, *, param: str | None = None) -> Reply:
    return Reply.of(_error_body(message, kind, code, param), code)
