"""Where a probe's load comes from: the host itself, or this machine over the connection."""

import asyncio
import importlib.resources
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Protocol

from eaglemon.app.probe_answer import Answer, number_in
from eaglemon.app.probe_target import ProbeTarget
from eaglemon.core.frames import MAX_HEAD_BYTES
from eaglemon.core.probe import (
    GeneratorHealth,
    LiveCounts,
    PlannedRequest,
    ProbePlan,
    RequestRecord,
    planned_requests,
)
from eaglemon.engines.base import GenerateRequest, HttpCall
from eaglemon.errors import AgentError
from eaglemon.io.clock import Clock
from eaglemon.io.http import HttpClient, HttpError, HttpLimits

CONNECT_LIMIT_S = 10.0
SILENCE_LIMIT_S = 60.0
"""Of a generator on the host, its start and its users' connections included."""
TICK_S = 0.01
LIVE_INTERVAL_S = 0.5
_MARK = "@eaglemon-prompt@"

_PER_REQUEST_BYTES = 16
"""For the number of its text, and what JSON sets between."""
_REST_BYTES = 256 << 10
"""For all that is no prompt: the request's template, certificates."""

LoadEvent = RequestRecord | LiveCounts | GeneratorHealth


class Load(Protocol):
    """Sends requests and tells what was seen of them."""

    driver: str
    """Where from, as shown."""

    def run(self, requests: Sequence[PlannedRequest]) -> AsyncGenerator[LoadEvent, None]:
        """Yield each request's record as it ends, and how the load goes; closing it ends it."""
        ...


def fits_host(plan: ProbePlan) -> bool:
    """Tell whether the prompts of a plan can be sent to a generator on the host, all at once."""
    if not plan.prompts:
        return True
    requests = planned_requests(plan, first=0, count=plan.warmup + plan.requests)
    texts = {request.prompt.text for request in requests}
    size = sum(len(json.dumps(text)) for text in texts)
    size += sum(len(json.dumps([one.number, one.prefix])) + _PER_REQUEST_BYTES for one in requests)
    return size + _REST_BYTES <= MAX_HEAD_BYTES


class HostLoad:
    """The load of a generator that runs on the host: no link and no console is in its way."""

    driver = "the host itself"

    def __init__(self, target: ProbeTarget, plan: ProbePlan) -> None:
        self._target = target
        self._plan = plan

    async def run(self, requests: Sequence[PlannedRequest]) -> AsyncGenerator[LoadEvent, None]:
        """Run the generator; raises ``AgentError`` where the host cannot run it."""
        source = importlib.resources.files("eaglemon.agent").joinpath("loadgen.py").read_bytes()
        by_number = {request.number: request for request in requests}
        items = self._target.host.link.run_program(source, input=self._job(requests))
        async with aclosing(items) as told:
            while (item := await self._next(told)) is not None:
                match item:
                    case {"live": Mapping() as live}:
                        yield LiveCounts(
                            at_s=number_in(live, "at"),
                            begun=int(number_in(live, "begun")),
                            ended=int(number_in(live, "ended")),
                            tokens=int(number_in(live, "tokens")),
                        )
                    case {"request": Mapping() as seen}:
                        yield self._record(seen, by_number)
                    case {"end": Mapping() as end}:
                        yield GeneratorHealth(
                            cpu_share=number_in(end, "cpu_share"),
                            lag_median_s=number_in(end, "lag_median_s"),
                            lag_p95_s=number_in(end, "lag_p95_s"),
                            lag_max_s=number_in(end, "lag_max_s"),
                            kernel_share=number_in(end, "kernel_share"),
                        )
                    case _:
                        pass

    async def _next(
        self, told: AsyncGenerator[Mapping[str, object], None]
    ) -> Mapping[str, object] | None:
        """Return what the generator tells next, ``None`` at its end: it tells twice a second."""
        try:
            async with asyncio.timeout(SILENCE_LIMIT_S):
                return await anext(told, None)
        except TimeoutError as error:
            raise AgentError(
                f"the load generator on {self._target.host.spec.name} has told nothing for "
                f"{SILENCE_LIMIT_S:g} s",
                kind="silent",
                hint="see whether the host is overloaded, or send the load from here: --from here",
            ) from error

    def _job(self, requests: Sequence[PlannedRequest]) -> dict[str, object]:
        target, plan = self._target, self._plan
        call = _call(target, plan, _MARK)
        texts = list(dict.fromkeys(request.prompt.text for request in requests))
        indexes = {text: index for index, text in enumerate(texts)}
        return {
            "address": target.url.address,
            "port": target.url.port,
            "authority": target.url.authority,
            "tls": _tls(target),
            "headers": target.headers,
            "users": plan.concurrency,
            "method": call.method,
            "path": target.url.prefix + call.path,
            "template": json.dumps(call.body),
            "mark": _MARK,
            "texts": texts,
            "requests": [[r.number, r.prefix, indexes[r.prompt.text]] for r in requests],
            "count_paths": target.engine.measuring.count_paths,
            "request_limit_s": plan.request_limit_s,
            "connect_limit_s": CONNECT_LIMIT_S,
            "duration_s": plan.duration_s,
        }

    def _record(
        self, seen: Mapping[str, object], requests: Mapping[int, PlannedRequest]
    ) -> RequestRecord:
        answer = Answer(self._target.engine.stream_decoder())
        events, status, error = seen.get("events"), seen.get("status"), seen.get("error")
        request = requests.get(int(number_in(seen, "number")))
        if not isinstance(events, list) or request is None:
            raise AgentError("the load generator told a malformed request", kind="protocol")
        answer.take_events(events)
        if isinstance(status, int) and status != 200:
            answer.refuse(status, str(seen.get("body", "")).encode())
        if error is not None:
            answer.broken = str(error)
        return answer.record(
            request.number,
            request.prompt.id,
            sent_at=number_in(seen, "sent_at"),
            took_s=number_in(seen, "took_s"),
        )


class ConsoleLoad:
    """The load of this process, over the host's connection.

    One HTTP client per user, since a shared pool delays first tokens at high concurrency. First
    tokens come later by the link's round trip, and by this process at more than a few users.
    """

    driver = "this machine, over the connection"

    def __init__(self, target: ProbeTarget, plan: ProbePlan, clock: Clock) -> None:
        self._target = target
        self._plan = plan
        self._clock = clock
        self._events: asyncio.Queue[LoadEvent | None] = asyncio.Queue()
        self._under_way: dict[int, Answer] = {}
        self._begun = self._ended = self._tokens = 0
        self._late: list[float] = []
        self._start = 0.0

    async def run(self, requests: Sequence[PlannedRequest]) -> AsyncGenerator[LoadEvent, None]:
        """Send the requests."""
        users = min(self._plan.concurrency, len(requests))
        async with (
            self._connected(users) as clients,
            aclosing(self._drive(clients, list(reversed(requests)))) as events,
        ):
            async for event in events:
                yield event

    @asynccontextmanager
    async def _connected(self, users: int) -> AsyncIterator[Sequence[HttpClient]]:
        """Yield clients that are connected before the clock starts, as those on the host are."""
        clients = [self._target.new_http() for _ in range(users)]
        try:
            await asyncio.gather(*(self._connect(http) for http in clients))
            yield clients
        finally:
            await asyncio.gather(*(http.close() for http in clients))

    async def _connect(self, http: HttpClient) -> None:
        limits = HttpLimits(connect_s=CONNECT_LIMIT_S, read_s=CONNECT_LIMIT_S)
        # What is wrong with the server the requests will tell, one by one.
        with suppress(HttpError):
            await http.request("GET", self._target.engine.endpoints.models, limits=limits)

    async def _drive(
        self, clients: Sequence[HttpClient], todo: list[PlannedRequest]
    ) -> AsyncGenerator[LoadEvent, None]:
        self._begun = self._ended = self._tokens = 0
        self._late = []
        self._start = self._clock.monotonic()
        cpu = time.process_time()
        users = [asyncio.create_task(self._user(http, todo), name="probe user") for http in clients]
        tasks = [
            *users,
            asyncio.create_task(self._watch(), name="probe watch"),
            asyncio.create_task(self._finish(users), name="probe end"),
        ]
        try:
            while (event := await self._events.get()) is not None:
                yield event
            for user in users:
                user.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        elapsed = self._clock.monotonic() - self._start
        late = sorted(self._late) or [0.0]
        yield GeneratorHealth(
            cpu_share=(time.process_time() - cpu) / elapsed if elapsed > 0 else 0.0,
            lag_median_s=late[len(late) // 2],
            lag_p95_s=late[min(len(late) - 1, int(0.95 * len(late)))],
            lag_max_s=late[-1],
        )

    async def _finish(self, users: Sequence[asyncio.Task[None]]) -> None:
        await asyncio.wait(users)
        self._events.put_nowait(None)

    async def _user(self, http: HttpClient, todo: list[PlannedRequest]) -> None:
        limit_s = self._plan.duration_s
        while todo and (limit_s is None or self._clock.monotonic() - self._start < limit_s):
            request = todo.pop()
            self._begun += 1
            record = await self._request(http, request)
            self._ended += 1
            self._tokens += record.received_tokens or 0
            self._events.put_nowait(record)

    async def _request(self, http: HttpClient, request: PlannedRequest) -> RequestRecord:
        call = _call(self._target, self._plan, request.prefix + request.prompt.text)
        answer = Answer(self._target.engine.stream_decoder())
        self._under_way[request.number] = answer
        limit_s = self._plan.request_limit_s
        sent = self._clock.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                await self._send(http, call, answer, sent)
        except HttpError as error:
            answer.broken = error.message
        except TimeoutError:
            answer.broken = f"no end within {limit_s:g} s"
        finally:
            del self._under_way[request.number]
        return answer.record(
            request.number,
            request.prompt.id,
            sent_at=sent - self._start,
            took_s=self._clock.monotonic() - sent,
        )

    async def _send(self, http: HttpClient, call: HttpCall, answer: Answer, sent: float) -> None:
        limits = HttpLimits(connect_s=CONNECT_LIMIT_S, read_s=self._plan.request_limit_s)
        async with http.stream(call.method, call.path, body=call.body, limits=limits) as stream:
            if stream.status == 200:
                async for chunk in stream.chunks():
                    answer.feed(chunk, self._clock.monotonic() - sent)
                answer.close(self._clock.monotonic() - sent)
            else:
                answer.refuse(stream.status, b"".join([part async for part in stream.chunks()]))

    async def _watch(self) -> None:
        told_at = self._start
        due = self._clock.monotonic() + TICK_S
        while True:
            await self._clock.sleep(due - self._clock.monotonic())
            now = self._clock.monotonic()
            while due <= now:  # A long delay counts for all the ticks that it delayed.
                self._late.append(now - due)
                due += TICK_S
            if now - told_at >= LIVE_INTERVAL_S:
                told_at = now
                under_way = sum(answer.tokens for answer in self._under_way.values())
                self._events.put_nowait(
                    LiveCounts(
                        at_s=now - self._start,
                        begun=self._begun,
                        ended=self._ended,
                        tokens=self._tokens + under_way,
                    )
                )


def _tls(target: ProbeTarget) -> dict[str, object] | None:
    if target.trust is None:
        return None
    return {"verify": target.trust.verify, "ca_pem": target.trust.ca_pem}


def _call(target: ProbeTarget, plan: ProbePlan, prompt: str) -> HttpCall:
    return target.engine.generate(
        GenerateRequest(
            prompt=prompt,
            model=target.model,
            max_tokens=plan.max_tokens,
            temperature=plan.temperature,
            ignore_eos=plan.ignore_eos,
            # A greedy answer needs none, and some engines sample slower with one.
            seed=plan.seed if plan.temperature > 0 else None,
        )
    )
