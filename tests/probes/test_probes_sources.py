"""Where a probe's accept length comes from where only the log tells it; seeds; what is kept."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from eaglemon.app.meter import Meter
from eaglemon.core.log_figures import acceptance_of
from eaglemon.core.logs import LogReader
from eaglemon.core.phases import DecodeStats
from eaglemon.core.probe import ProbePlan, ProbeProgress, Prompt, without_prompts
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.sse import SseEvent
from eaglemon.engines import ENGINES
from eaglemon.engines.base import AnswerSeen, GenerateRequest
from eaglemon.io.probe_files import read_probes, write_probes
from tests.probes.scripted_server import Script, ScriptedServer, good, local_hub, plan

CAPTURES = Path(__file__).parents[1] / "captures"
SGLANG = CAPTURES / "sglang-0.5.16-h200"
ROUND = 8
"""Requests of a captured round; the engine's own warm-up comes before the first."""


def stats_of(engine: str, log: bytes) -> list[DecodeStats]:
    reader = LogReader(ENGINES[engine].log_rules)
    events = reader.feed(log + b"\n") + reader.close()
    return [event for event in events if isinstance(event, DecodeStats)]


def round_of(run: str, number: int) -> list[DecodeStats]:
    """Return the log lines of the n-th round of requests, one after the other."""
    lines = (SGLANG / run / "server.log").read_bytes().split(b"\n")
    ended = [i for i, line in enumerate(lines) if b"POST /generate" in line]
    first = ended[number * ROUND] + 1
    return stats_of("sglang", b"\n".join(lines[first : ended[(number + 1) * ROUND] + 1]))


@pytest.mark.parametrize(
    ("run", "exact"),
    [("eagle3-right", 3.743), ("eagle3-wrongwired", 1.457), ("tp2-right-killrank", 4.021)],
)
def test_lines_of_a_captured_round_tell_its_accept_length(run: str, exact: float) -> None:
    """``exact`` is from the same round's answers: lines agree within their edges."""
    lines = round_of(run, 1)
    found = acceptance_of(lines)
    assert found is not None
    assert found.lines == len(lines) >= 10
    assert found.accept_length == pytest.approx(exact, rel=0.025)
    assert found.counts is None


def test_lines_without_speculation_tell_nothing() -> None:
    lines = stats_of("sglang", (SGLANG / "baseline" / "server.log").read_bytes())
    assert len(lines) > 50
    assert acceptance_of(lines) is None
    assert acceptance_of([]) is None


def test_lines_that_count_are_added_up() -> None:
    """vLLM's lines: 45 + 608 + 2222 + 204 accepted of 84 + 1041 + 3933 + 393 drafted, K = 3."""
    log = (CAPTURES / "vllm-0.32-cpu" / "ready-compile.log").read_bytes()
    found = acceptance_of(stats_of("vllm", log))
    assert found is not None
    assert found.counts is not None
    assert (found.lines, found.counts.accepted, found.counts.proposed) == (4, 3079, 5451)
    assert found.counts.steps == 1817
    assert found.accept_length == pytest.approx(1 + 3079 / 1817)
    # The positions are printed with three digits.
    assert 1 + sum(found.counts.survival) == pytest.approx(found.accept_length, rel=0.002)


def test_a_line_weighs_as_much_as_requests_ran() -> None:
    lines = [
        DecodeStats(accept_length=2.0, running=1),
        DecodeStats(accept_length=4.0, running=3),
        DecodeStats(tok_s=5.0, running=100),
    ]
    found = acceptance_of(lines)
    assert found is not None
    assert (found.accept_length, found.lines) == (3.5, 2)


OLD = (
    b"[2025-10-02 06:50:11] Decode batch. #running-req: 1, #token: 180, token usage: 0.01, "
    b"accept len: 2.17, accept rate: 0.54, cuda graph: True, gen throughput (token/s): 109.35, "
    b"#queue-req: 0, "
)
NEW = (
    b"[2026-11-02 06:50:11 TP0] Decode batch [812], #running-req: 2, #full token: 180, "
    b"full token usage: 0.01, #swa token: 9, swa token usage: 0.02, accept len: 3.10, "
    b"accept rate: 0.42, cap len: 3.50, cuda graph: True, gen throughput (token/s): 209.35, "
    b"#queue-req: 4"
)


def test_lines_of_older_and_newer_releases() -> None:
    (old,) = stats_of("sglang", OLD)
    assert (old.accept_length, old.tok_s, old.running) == (2.17, 109.35, 1)
    (new,) = stats_of("sglang", NEW)
    assert (new.accept_length, new.tok_s, new.running, new.waiting) == (3.1, 209.35, 2, 4)


def test_a_panel_without_metrics_has_both_lines_of_an_engine() -> None:
    """vLLM tells load and acceptance in lines of their own: neither may hide the other."""
    meter = Meter(ceiling=4)
    log = (CAPTURES / "vllm-0.32-cpu" / "ready-compile.log").read_bytes()
    told = stats_of("vllm", log)
    for at, stats in enumerate(told):
        meter.line_seen(stats, at=float(at), wall=1e9 + at)
    now = float(len(told))

    view, load = meter.acceptance(now), meter.load(now)

    assert view is not None
    assert load is not None
    last = [stats for stats in told if stats.accept_length is not None][-1]
    assert (view.accept_length, view.source) == (last.accept_length, "log line")
    assert view.per_position == last.per_position
    assert load.source == "log line"
    assert load.tok_s == [s for s in told if s.tok_s is not None][-1].tok_s
    assert meter.lines_since(now - 1.5) == (told[-1],)


async def test_a_probe_falls_back_to_the_log(tmp_path: Path) -> None:
    """Answers tell no steps and no metrics are served: the lines are read, and named."""
    lines = tuple(round_of("eagle3-right", 1))
    asked: list[float] = []

    def since(at: float) -> tuple[DecodeStats, ...]:
        asked.append(at)
        return lines

    async with ScriptedServer(lambda _: good(1, 4, 6)) as server, local_hub(tmp_path) as hub:
        target = await hub.reach(server.url, host="local")
        known = hub._probes._reached
        known[target] = replace(known[target], lines_since=since)
        done = await hub.probe(target, plan())

    found = acceptance_of(lines)
    assert found is not None
    assert done.figures.accept_length == found.accept_length
    assert done.figures.accept_source == "log lines"
    assert done.figures.counts is None
    assert len(asked) == 1
    assert any(f"{len(lines)} log lines" in note for note in done.notes)


@pytest.mark.parametrize(("engine", "path"), [("sglang", "sampling_seed"), ("vllm", "seed")])
def test_a_seed_is_in_the_field_that_the_engine_reads(engine: str, path: str) -> None:
    request = GenerateRequest(prompt="p", model="m", max_tokens=7, temperature=0.8, seed=11)
    body = ENGINES[engine].generate(request).body
    unseeded = ENGINES[engine].generate(replace(request, seed=None)).body
    assert body is not None
    assert unseeded is not None
    assert json.dumps(body).count(f'"{path}": 11') == 1
    assert "seed" not in json.dumps(unseeded)


@pytest.mark.parametrize("from_host", [True, False], ids=["from-host", "from-here"])
async def test_a_seed_is_sent_where_it_matters(tmp_path: Path, *, from_host: bool) -> None:
    script: Script = good(1, 4, 6, spec_verify_ct=2)
    async with ScriptedServer(lambda _: script) as server, local_hub(tmp_path) as hub:
        target = await hub.reach(server.url, host="local")
        given = plan(requests=2, seed=7, temperature=0.8, from_host=from_host)
        warm = await hub.probe(target, given)
        greedy = await hub.probe(target, replace(given, temperature=0.0))

    sent = [one["sampling_params"].get("sampling_seed") for one in server.generations]
    assert sent == [7, 7, None, None]
    assert warm.plan.seed == greedy.plan.seed == 7
    # The engine's own name of a request, to find it in its log.
    assert {record.request_id for record in warm.records} == {"x"}


async def test_results_hold_no_prompts(tmp_path: Path) -> None:
    given = plan(prompts=(Prompt(id="a", text="a secret of the house"),))
    seen: list[ProbeProgress] = []
    async with ScriptedServer(lambda _: good(1, 4, 6)) as server, local_hub(tmp_path) as hub:
        target = await hub.reach(server.url, host="local")
        done = await hub.probe(target, given, seen=seen.append)

    for progress in [*seen, done]:
        assert b"secret of" not in msgspec.json.encode(progress)
        assert progress.plan.prompts_sha256 == without_prompts(given).prompts_sha256
    assert done.plan.workload == "chat"
    for suffix in (".json", ".jsonl", ".csv"):
        path = tmp_path / f"result{suffix}"
        write_probes(path, [done])
        assert "secret of" not in path.read_text("utf-8")
    (again,) = read_probes(tmp_path / "result.json")
    assert again == done
    records = [json.loads(line) for line in (tmp_path / "result.jsonl").read_text().splitlines()]
    assert [record["prompt_id"] for record in records] == ["a"] * 4
    assert [record["request_id"] for record in records] == ["x"] * 4


def test_the_hash_tells_prompts_apart() -> None:
    def digest(*prompts: tuple[str, str]) -> str:
        made = tuple(Prompt(id=name, text=text) for name, text in prompts)
        given = ProbePlan(workload="w", prompts=made, requests=1, concurrency=1)
        return without_prompts(given).prompts_sha256

    assert digest(("a", "bc")) == digest(("a", "bc"))
    assert len({digest(("a", "bc")), digest(("ab", "c")), digest(("a", "bc"), ("", "")), ""}) == 4


OLDER = {"spec_accept_histogram", "spec_accepted_drafts", "spec_proposed_drafts"}
"""Names that 0.5.23 has dropped and 0.5.16 tells beside the newer ones."""
NEWER = {"spec_correct_drafts_histogram", "spec_num_correct_drafts", "spec_num_proposed_drafts"}


@pytest.mark.parametrize("run", ["eagle3-right", "eagle3-wrongwired", "tp2-right-killrank"])
def test_an_answer_tells_the_same_by_older_and_newer_names(run: str) -> None:
    for answer in json.loads((SGLANG / run / "bench-c1.json").read_text("utf-8")):
        meta = answer["meta_info"]
        assert meta.keys() >= OLDER | NEWER
        whole = counts_of(meta)
        assert whole is not None
        for dropped in (OLDER, NEWER):
            assert counts_of({k: v for k, v in meta.items() if k not in dropped}) == whole


def counts_of(meta: dict[str, object]) -> AcceptCounts | None:
    """Return what the decoder makes of the end of an answer."""
    decoder = ENGINES["sglang"].stream_decoder()
    decoder.feed(SseEvent(data=json.dumps({"text": "x", "meta_info": meta})))
    (end,) = decoder.feed(SseEvent(data="[DONE]"))
    assert isinstance(end, AnswerSeen)
    return end.counts
