"""Probes of servers at an address, from the host and from here: what is counted and told."""

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.probe import ProbePlan, ProbeProgress, RequestStatus
from eaglemon.errors import AgentError, HostError, ProbeError, ServerError, UsageError
from eaglemon.io.agent_link import AgentLink
from tests.probes.scripted_server import (
    ABORT,
    DIE,
    DONE,
    END,
    EOF,
    HANG,
    OK,
    UNTIL_CLOSE,
    Script,
    ScriptedServer,
    Step,
    chunk,
    event,
    good,
    local_hub,
    plan,
)

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.16-h200"
FROM = pytest.mark.parametrize("from_host", [True, False], ids=["from-host", "from-here"])
Items = AsyncGenerator[Mapping[str, object], None]
GOOD = good(1, 4, 6, spec_verify_ct=2)
PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"


async def probe(
    server: ScriptedServer, given: ProbePlan, state: Path, seen: Any = None
) -> ProbeProgress:
    async with local_hub(state) as hub, asyncio.timeout(90):
        target = await hub.reach(server.url, host="local")
        return await hub.probe(target, given, seen=seen)


@FROM
async def test_a_good_run(tmp_path: Path, *, from_host: bool) -> None:
    seen: list[ProbeProgress] = []
    async with ScriptedServer(lambda _: GOOD) as server:
        given = plan(from_host=from_host, nonce="n", warmup=2, flush=True)
        done = await probe(server, given, tmp_path, seen.append)

    assert (done.figures.ok, done.figures.failed, done.figures.cut) == (4, 0, 0)
    assert done.figures.completion_tokens == 24
    assert done.figures.counts is not None
    assert (done.figures.counts.steps, done.figures.accept_length) == (8, 3.0)
    assert sorted(record.number for record in done.records) == [0, 1, 2, 3]
    assert all(record.prompt_tokens == 7 for record in done.records)
    texts = sorted(one["text"] for one in server.generations)
    assert texts == [f"[n-{i}] prompt {(i if i < 2 else i - 2) % 3}" for i in range(6)]
    assert server.paths.count("/flush_cache?timeout=10") == 1
    assert done.driver == ("the host itself" if from_host else "this machine, over the connection")
    assert done.generator is not None
    assert {progress.state for progress in seen} == {"warming-up", "running", "done"}
    if from_host:
        # One connection per user and phase, and those of the console for its questions.
        assert server.connections <= 2 * 2 + 2


@FROM
async def test_chunks_of_several_tokens_are_timed_as_they_arrive(
    tmp_path: Path, *, from_host: bool
) -> None:
    script: Script = [OK, 0.1, chunk(event(1)), 0.1, *good(4, 7, 10, gap_s=0.1)[1:]]
    async with ScriptedServer(lambda _: script) as server:
        done = await probe(server, plan(requests=2, concurrency=1, from_host=from_host), tmp_path)

    # A busy machine sends late, and the figures are of what arrived.
    for record in done.records:
        assert [arrival.tokens for arrival in record.arrivals] == [1, 3, 3, 3]
        assert record.ttft_s == record.arrivals[0].at_s > 0.09
        # The first token is of the time before it.
        first, *_, last = (arrival.at_s for arrival in record.arrivals)
        assert last - first > 0.2
        assert record.decode_tok_s == pytest.approx(9 / (last - first))
    gaps_s = sorted(
        after.at_s - before.at_s
        for record in done.records
        for before, after in itertools.pairwise(record.arrivals)
    )
    assert done.figures.chunk_gap_s is not None
    assert done.figures.chunk_gap_s.median == pytest.approx(sum(gaps_s[2:4]) / 2, rel=0.2)
    assert done.figures.token_time_s is not None
    each_s = sorted(1 / (record.decode_tok_s or 1.0) for record in done.records)
    assert each_s[0] * 0.999 <= done.figures.token_time_s.median <= each_s[1] * 1.001


SLOW_HEAD: list[Step] = [b"X: y\r\n", 0.05]
SLOW_BODY: list[Step] = [chunk(b":\n"), 0.05]
BAD: dict[str, tuple[Script, RequestStatus, str]] = {
    "http-400": (
        [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 8\r\n\r\ntoo long"],
        RequestStatus.FAILED,
        "HTTP 400: too long",
    ),
    "http-503-closing": (
        [b"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\nbusy", EOF],
        RequestStatus.FAILED,
        "HTTP 503: busy",
    ),
    "error-in-stream": (
        [OK, chunk(b'data: {"error": {"message": "no memory"}}\n\n'), END],
        RequestStatus.FAILED,
        "no memory",
    ),
    "no-json": (
        [OK, chunk(event(1)), chunk(b"data: {nonsense\n\n"), chunk(DONE), END],
        RequestStatus.FAILED,
        "no JSON",
    ),
    "no-http": ([b"SSH-2.0-OpenSSH_9.2\r\n\r\n", ABORT], RequestStatus.FAILED, ""),
    "dies-before-an-answer": ([ABORT], RequestStatus.FAILED, ""),
    "dies-mid-stream": ([OK, chunk(event(3)), 0.05, ABORT], RequestStatus.CUT, ""),
    "half-closed": ([OK, chunk(event(3)), 0.05, EOF], RequestStatus.CUT, ""),
    "half-closed-without-length": (
        [UNTIL_CLOSE, event(3), 0.05, EOF],
        RequestStatus.CUT,
        "before the answer",
    ),
    "broken-chunk": (
        [OK, chunk(event(3)), 0.05, b"zz\r\n", ABORT],
        RequestStatus.CUT,
        "",
    ),
    "ends-early": ([OK, chunk(event(3)), END], RequestStatus.CUT, "before the answer"),
    "packed-and-damaged": (
        [PACKED, event(1), 0.05, EOF],
        RequestStatus.FAILED,
        "",
    ),
}
NO_END: dict[str, tuple[Script, RequestStatus]] = {
    "slow-head": ([b"HTTP/1.1 200 OK\r\n", *SLOW_HEAD * 1200], RequestStatus.FAILED),
    "slow-body": ([OK, chunk(event(3)), *SLOW_BODY * 1200], RequestStatus.CUT),
    "hangs-mid-stream": ([OK, chunk(event(3)), HANG], RequestStatus.CUT),
    "hangs-at-once": ([HANG], RequestStatus.FAILED),
}


def closing(version: bytes, *events: bytes, packed: bool = False) -> Script:
    head = version + b" 200 OK\r\n" + (b"Content-Encoding: gzip\r\n" if packed else b"")
    return [head + b"\r\n", *events, EOF]


UNUSUAL: dict[str, Script] = {
    "http-1.0": closing(b"HTTP/1.0", event(1), event(6, done=True, spec_verify_ct=2), DONE),
    "closes-at-the-end": closing(b"HTTP/1.1", event(6, done=True, spec_verify_ct=2) + DONE),
    "trailers": [*GOOD[:-1], b"0\r\nX-Trailer: 1\r\nAnother: 2\r\n\r\n"],
    "packed": [
        PACKED,
        gzip.compress(event(1) + event(6, done=True, spec_verify_ct=2) + DONE),
        EOF,
    ],
}


@FROM
async def test_unusual_answers_are_read(tmp_path: Path, *, from_host: bool) -> None:
    scripts = list(UNUSUAL.values())
    async with ScriptedServer(lambda n: scripts[n // 2]) as server:
        given = plan(concurrency=1, requests=2 * len(scripts), from_host=from_host)
        done = await probe(server, given, tmp_path)
    errors = {name: done.records[2 * i + 1].error for i, name in enumerate(UNUSUAL)}
    assert errors == dict.fromkeys(UNUSUAL)
    assert (done.figures.ok, done.figures.completion_tokens) == (given.requests, 6 * given.requests)
    assert done.figures.accept_length == 3.0
    asked = [head for head in server.heads if head.startswith("POST /generate")]
    assert all("accept-encoding: identity" in head.lower() for head in asked)


@FROM
async def test_bad_answers_are_counted_apart(tmp_path: Path, *, from_host: bool) -> None:
    """Good and bad answers in turn: each is what it is, and the good ones make the figures."""
    scripts = [script for script, *_ in BAD.values()]
    async with ScriptedServer(lambda n: scripts[n // 2] if n % 2 else GOOD) as server:
        given = plan(
            concurrency=1, requests=2 * len(BAD), from_host=from_host, request_limit_s=60.0
        )
        done = await probe(server, given, tmp_path)

    good = done.records[0::2]
    assert [(r.number, r.error) for r in good if r.status is not RequestStatus.OK] == []
    found = {name: record.status for name, record in zip(BAD, done.records[1::2], strict=True)}
    assert found == {name: status for name, (_, status, _) in BAD.items()}
    for (name, (_, _, words)), record in zip(BAD.items(), done.records[1::2], strict=True):
        assert words in (record.error or ""), name
    assert done.figures.ok == len(good)
    assert done.figures.failed + done.figures.cut == len(BAD)
    assert done.figures.completion_tokens == 6 * len(good)
    assert done.figures.accept_length == 3.0


@FROM
async def test_answers_without_an_end_are_given_up(tmp_path: Path, *, from_host: bool) -> None:
    scripts = [script for script, _ in NO_END.values()]
    async with ScriptedServer(lambda n: scripts[n] if n < len(scripts) else GOOD) as server:
        # All of them at once, and then a good one for each.
        given = plan(
            concurrency=len(NO_END), requests=2 * len(NO_END), from_host=from_host,
            request_limit_s=3.0,
        )  # fmt: skip
        done = await probe(server, given, tmp_path)

    bad = done.records[: len(NO_END)]
    wanted = sorted(status for _, status in NO_END.values())
    assert sorted(record.status for record in bad) == wanted
    assert all("no end within 3 s" in (record.error or "") for record in bad)
    assert done.figures.ok == len(NO_END)


@FROM
async def test_a_server_that_dies_is_told(tmp_path: Path, *, from_host: bool) -> None:
    script: Script = [OK, chunk(event(2)), 0.2, DIE]
    async with ScriptedServer(lambda n: GOOD if n < 2 else script) as server:
        done = await probe(server, plan(requests=8, from_host=from_host), tmp_path)

    assert done.figures.ok == 2
    assert done.figures.failed + done.figures.cut == 6
    assert done.figures.failed >= 4
    refused = [r.error or "" for r in done.records if r.status is RequestStatus.FAILED]
    assert any("refused" in error.lower() or "connect" in error.lower() for error in refused)


@FROM
async def test_nothing_but_failures_is_an_error(tmp_path: Path, *, from_host: bool) -> None:
    reply: Script = [b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops"]
    seen: list[ProbeProgress] = []
    async with ScriptedServer(lambda _: reply) as server:
        with pytest.raises(ProbeError, match="none of 4 requests ended well: HTTP 500: oops"):
            await probe(server, plan(from_host=from_host), tmp_path, seen.append)
    assert seen[-1].state == "failed"
    assert len(seen[-1].records) == 4


@FROM
async def test_the_time_limit_ends_a_probe(tmp_path: Path, *, from_host: bool) -> None:
    async with ScriptedServer(lambda _: [OK, HANG]) as server:
        with pytest.raises(ProbeError, match="not done within 1 s"):
            await probe(server, plan(from_host=from_host, total_limit_s=1.0), tmp_path)


@FROM
async def test_cancelling_keeps_what_was_measured(tmp_path: Path, *, from_host: bool) -> None:
    seen: list[ProbeProgress] = []
    async with (
        ScriptedServer(lambda n: GOOD if n < 2 else [OK, HANG]) as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(90),
    ):
        target = await hub.reach(server.url, host="local")
        given = plan(from_host=from_host)
        running = asyncio.create_task(hub.probe(target, given, seen=seen.append))
        while not (seen and seen[-1].done == 2):
            await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert seen[-1].state == "cancelled"
        assert [record.status for record in seen[-1].records] == [RequestStatus.OK] * 2
        # The host goes on, and another probe may begin.
        assert hub._hosts["local"].is_up


@FROM
async def test_a_duration_bounds_the_load(tmp_path: Path, *, from_host: bool) -> None:
    async with ScriptedServer(lambda _: good(1, 4, 6, gap_s=0.02)) as server:
        given = plan(requests=5000, duration_s=0.6, from_host=from_host)
        done = await probe(server, given, tmp_path)

    assert 2 <= done.figures.ok < 200
    assert done.figures.duration_s > 0.5
    assert not any("were up" in note for note in done.notes)


async def test_a_lost_link_ends_the_probe_and_the_next_may_begin(tmp_path: Path) -> None:
    seen: list[ProbeProgress] = []
    async with (
        ScriptedServer(lambda n: GOOD if n != 2 else [OK, HANG]) as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(90),
    ):
        target = await hub.reach(server.url, host="local")
        running = asyncio.create_task(hub.probe(target, plan(concurrency=1), seen=seen.append))
        while not (seen and seen[-1].done == 2):
            await asyncio.sleep(0.02)
        with pytest.raises(ServerError, match="is being probed already"):
            await hub.probe(target, plan())
        await hub._hosts["local"].link.close()
        with pytest.raises(ProbeError, match="broke off: the link to local was closed"):
            await running
        assert seen[-1].state == "failed"
        hub._hosts["local"].retry()
        while not hub._hosts["local"].is_up:
            await asyncio.sleep(0.02)
        assert (await hub.probe(target, plan())).figures.ok == 4


async def test_a_host_that_cannot_run_the_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(link: object, *_: object, **__: object) -> Items:
        if link is not None:
            raise AgentError("this agent does not know 'program.run'", kind="unknown-op")
        yield {}

    monkeypatch.setattr(AgentLink, "run_program", refused)
    async with ScriptedServer(lambda _: GOOD) as server:
        done = await probe(server, plan(), tmp_path)
    assert done.driver == "this machine, over the connection"
    assert any("does not know 'program.run'" in note for note in done.notes)
    assert done.figures.ok == 4


def counters(tokens: int, *, running: int = 0) -> str:
    return (
        f"sglang:generation_tokens_total {tokens}\nsglang:spec_verify_calls_total {tokens / 3}\n"
        f"sglang:num_running_reqs {running}\n"
    )


async def test_other_peoples_traffic_is_recognised(tmp_path: Path) -> None:
    async with ScriptedServer(
        lambda _: good(1, 4, 6), lambda n: counters(100 + 30 * n, running=2 if n < 1 else 0)
    ) as server:
        done = await probe(server, plan(), tmp_path)

    assert done.foreign_tokens == 4 * 24
    notes = " ".join(done.notes)
    assert "96 tokens for others" in notes
    assert "2 requests of others ran" in notes


async def test_a_quiet_server_gives_no_warning(tmp_path: Path) -> None:
    async with ScriptedServer(lambda _: good(1, 4, 6), lambda n: counters(100 + 6 * n)) as server:
        done = await probe(server, plan(), tmp_path)

    assert done.foreign_tokens == 0
    # A busy machine may make the generator late, which it then says.
    assert [note for note in done.notes if "generator" not in note] == []
    assert done.figures.accept_source == "counter difference"
    assert done.figures.accept_length == pytest.approx(3.0)


async def test_a_server_without_metrics_says_how_to_turn_them_on(tmp_path: Path) -> None:
    async with ScriptedServer(lambda _: GOOD) as server:
        done = await probe(server, plan(), tmp_path)
    assert any("--enable-metrics" in note for note in done.notes)


@pytest.mark.parametrize(
    ("run", "expected"),
    [("eagle3-right", 3.74), ("eagle3-wrongwired", 1.46), ("tp2-right-killrank", 4.02)],
)
async def test_captured_answers_give_their_accept_length(
    tmp_path: Path, run: str, expected: float
) -> None:
    """The answers of a real server, through the generator, the decoder and the figures."""
    answers = json.loads((CAPTURES / run / "bench-c1.json").read_text("utf-8"))

    def replay(number: int) -> Script:
        data = json.dumps({k: v for k, v in answers[number].items() if k != "dt"}).encode()
        return [OK, chunk(event(1)), chunk(b"data: " + data + b"\n\n"), chunk(DONE), END]

    async with ScriptedServer(replay) as server:
        done = await probe(server, plan(requests=len(answers), concurrency=1), tmp_path)

    figures = done.figures
    assert figures.ok == len(answers) == 8
    assert figures.accept_length == pytest.approx(expected, abs=0.006)
    assert figures.accept_source == "per-request answers"
    histograms = [a["meta_info"]["spec_correct_drafts_histogram"] for a in answers]
    steps = sum(map(sum, histograms))
    survival = [sum(sum(h[i:]) for h in histograms) / steps for i in range(1, 6)]
    assert figures.per_position == pytest.approx(survival)
    assert figures.accept_length == pytest.approx(1 + sum(survival))


async def test_what_is_no_engine_is_told(tmp_path: Path) -> None:
    async with local_hub(tmp_path) as hub, asyncio.timeout(90):
        with pytest.raises(UsageError, match="write http://ADDRESS:PORT"):
            await hub.reach("ftp://example.org", host="local")
        with pytest.raises(UsageError, match="unknown host 'elsewhere'"):
            await hub.reach("http://127.0.0.1:1", host="elsewhere")
        with pytest.raises(HostError, match=r"127\.0\.0\.1:1"):
            await hub.reach("http://127.0.0.1:1", host="local")
        async with ScriptedServer(lambda _: GOOD) as server:
            with pytest.raises(UsageError, match="no address of a server"):
                await hub.reach(f"{server.url}/v1?x=1", host="local")
            with pytest.raises(ProbeError, match="HTTP 404"):
                await hub.reach(f"{server.url}/elsewhere/v1", host="local")
