"""The simulated vLLM server as real processes."""

import itertools
import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.sim.conftest import LIMIT_S, VLLM_EAGLE3, Engine, Start, until

CAPTURED = Path(__file__).parent / "captured"
ASK: dict[str, object] = {
    "model": "tiny",
    "prompt": "What is speculative decoding?",
    "max_tokens": 40,
    "temperature": 0,
    "ignore_eos": True,
}
USAGE: dict[str, object] = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}


def events(text: str) -> list[dict[str, object]]:
    body = text.split("\n\n", 1)[1] if text.startswith("HTTP/") else text
    parts = [part for part in body.strip().split("\n\n") if part.startswith("data: {")]
    assert body.strip().endswith("data: [DONE]")
    return [json.loads(part[6:]) for part in parts]


def keys(value: object) -> object:
    """The keys of a JSON value, at every level and in lists."""
    if isinstance(value, dict):
        return {key: keys(item) for key, item in sorted(value.items())}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [keys(value[0])]
    return None


def counters(engine: Engine) -> dict[str, float]:
    found = re.findall(r"^(vllm:\w+)\{.*?\} (\S+)$", engine.get("/metrics").text, re.M)
    return {name: float(value) for name, value in found}


def test_the_start_up_phases_in_order(start: Start) -> None:
    engine = start("vllm").ready()
    marks = [
        "version 0.32.0",
        "non-default args: {'model_tag': '/models/Qwen3-8B'",
        "Resolved architecture: Qwen3ForCausalLM",
        "Resolved architecture: LlamaForCausalLMEagle3",
        "(EngineCore pid=",
        (
            "Initializing a V1 LLM engine (v0.32.0) with config: model='/models/Qwen3-8B', "
            "speculative_config=SpeculativeConfig(method='eagle3', model='/models/draft', "
            "num_spec_tokens=3)"
        ),
        "Starting to load model /models/Qwen3-8B...",
        "\rLoading safetensors checkpoint shards: 100% Completed | 3/3",
        "Loading weights took ",
        "Loading drafter model...",
        "Loading weights took ",
        "[backbone] Dynamo bytecode transform time",
        "[eagle_head] torch.compile took",
        "Available KV cache memory:",
        "GPU KV cache size:",
        "Capturing CUDA graphs (decode, FULL): 100%",
        "Graph capturing finished in",
        "init engine (profile, create kv cache, warmup model) took",
        "Starting vLLM server on http://0.0.0.0:",
        "INFO:     Application startup complete.",
    ]
    at = 0
    for mark in marks:
        found = engine.log.find(mark, at)
        assert found >= 0, f"{mark!r} not after {engine.log[max(0, at - 200) : at]!r}"
        at = found + 1
    assert re.search(
        r"^\(Worker pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[gpu_worker.py:508\] ",
        engine.log,
        re.M,
    )


def test_processes_memory_and_refused_connections(start: Start) -> None:
    arguments = [*VLLM_EAGLE3, "--tensor-parallel-size", "2"]
    engine = start("vllm", arguments, VLLM_PROCESS_NAME_PREFIX="run-7")
    until(lambda: "Starting to load model" in engine.log, "loading")
    engine.refuses_until("Started server process")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("0.0.0.0", engine.port))
    engine.ready()
    answer = engine.get("/health")
    assert (answer.status_code, answer.content) == (200, b"")
    titles = engine.titles()
    assert {"run-7::EngineCore", "run-7::Worker_TP0", "run-7::Worker_TP1"} < set(titles)
    assert len(titles) == 4
    assert any(title.startswith("vllm serve /models/Qwen3-8B") for title in titles)
    environ = Path(f"/proc/{titles['run-7::Worker_TP0']}/environ").read_bytes()
    assert not environ.strip(b"\0")
    held = [
        json.loads(path.read_text())["gpus"]
        for path in (engine.folder / "sim" / "memory").glob("*.json")
    ]
    assert sorted(next(iter(gpus)) for gpus in held) == ["0", "1"]


def test_answers_have_the_captured_fields(start: Start) -> None:
    engine = start("vllm", [*VLLM_EAGLE3, "--per-request-spec-decode-metrics", "detailed"]).ready()
    found = events(engine.post("/v1/completions", {**ASK, **USAGE}).text)
    usage_figures = found[-1].pop("metrics")
    assert isinstance(usage_figures, dict)
    captured = events((CAPTURED / "vllm-stream-continuous-usage.txt").read_text("utf-8"))
    assert keys(found[0]) == keys(captured[0])
    assert keys(found[-2]) == keys(captured[-2])
    assert keys(found[-1]) == keys(captured[-1])
    counts = [event["usage"]["completion_tokens"] for event in found]  # type: ignore[index]
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[-1] == 40
    assert max(b - a for a, b in itertools.pairwise(counts)) > 1

    chat = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12}
    only_last = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    found = events(engine.post("/v1/chat/completions", {**chat, **only_last}).text)
    found[-1].pop("metrics")
    captured = events((CAPTURED / "vllm-stream-chat-include-usage.txt").read_text("utf-8"))
    assert [keys(found[index]) for index in (0, 1, -2, -1)] == [
        keys(captured[index]) for index in (0, 1, -2, -1)
    ]

    whole = engine.post("/v1/completions", ASK).json()
    captured_whole = json.loads((CAPTURED / "vllm-completion-spec-metrics.json").read_text("utf-8"))
    assert set(whole) == set(captured_whole)
    assert keys(whole["choices"]) == keys(captured_whole["choices"])
    assert keys(whole["metrics"]) == keys(captured_whole["metrics"])
    figures = whole["metrics"]["speculative_decoding"]
    assert figures == usage_figures["speculative_decoding"]
    assert sum(figures["acceptance_histogram"]) == figures["num_spec_steps"]

    assert engine.get("/version").json() == {"version": "0.32.0"}
    assert engine.get("/v1/models").json()["data"][0]["root"] == "/models/Qwen3-8B"
    wrong = engine.post("/v1/completions", {**ASK, "model": "nope"})
    assert wrong.status_code == 404
    assert wrong.json()["error"]["message"] == (
        "The model `nope` does not exist. Valid aliases: tiny."
    )


def test_counters_follow_each_step_and_agree_with_the_answers(start: Start) -> None:
    engine = start("vllm", VLLM_LOG_STATS_INTERVAL="1").ready()
    before = counters(engine)
    assert before["vllm:spec_decode_num_drafts_total"] == 0
    body = {**ASK, "max_tokens": 200, "stream": True}
    with httpx.stream("POST", engine.url + "/v1/completions", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        next(lines)
        until(lambda: counters(engine)["vllm:generation_tokens_total"] > 5, "live counters")
        assert counters(engine)["vllm:num_requests_running"] == 1
        assert [line for line in lines if line][-1] == "data: [DONE]"
    until(lambda: counters(engine)["vllm:num_requests_running"] == 0, "idle")
    after = counters(engine)
    drafts = after["vllm:spec_decode_num_drafts_total"]
    accepted = after["vllm:spec_decode_num_accepted_tokens_total"]
    assert after["vllm:spec_decode_num_draft_tokens_total"] == 3 * drafts
    assert after["vllm:generation_tokens_total"] == 200
    assert 1 + drafts + accepted - 200 in {0, 1, 2, 3}
    positions = re.findall(
        r'accepted_tokens_per_pos_total\{.*position="(\d)"\} (\S+)', engine.get("/metrics").text
    )
    assert [index for index, _count in positions] == ["0", "1", "2"]
    assert sum(float(count) for _index, count in positions) == accepted
    until(lambda: "SpecDecoding metrics: Mean acceptance length: " in engine.log, "the line")
    assert re.search(
        r"loggers.py:335\] Engine 000: Avg prompt throughput: [\d.]+ tokens/s, Avg generation "
        r"throughput: [\d.]+ tokens/s, Running: \d reqs, Waiting: 0 reqs, GPU KV cache usage: "
        r"0.0%, Prefix cache hit rate: 0.0%",
        engine.log,
    )
    known = set((CAPTURED / "vllm-metrics-names.txt").read_text("utf-8").splitlines())
    names = {line.split(" ")[0] for line in known}
    for line in engine.get("/metrics").text.splitlines():
        name = re.split(r"[{ ]", line)[0]
        if name.startswith("vllm:") and name != "vllm:cache_config_info":
            labels = sorted(set(re.findall(r'(\w+)="', line)) - {"le"})
            assert name in names
            assert f"{name} {','.join(labels)}" in known


def test_a_baseline_has_no_speculation_metrics(start: Start) -> None:
    engine = start("vllm", ["serve", "/models/t"]).ready()
    assert "spec_decode" not in engine.get("/metrics").text
    body = {**ASK, "model": "/models/t"}
    assert engine.post("/v1/completions", body).json()["usage"]["completion_tokens"] == 40


def test_sigterm_when_idle_is_clean(start: Start) -> None:
    engine = start("vllm").ready()
    engine.process.terminate()
    assert engine.wait() == 0
    assert "[shutdown] EngineCore: trigger received signal=SIGTERM" in engine.log
    assert "INFO:     Application shutdown complete." in engine.log
    until(lambda: not engine.processes(), "no process is left")


def test_sigterm_under_a_stream_waits_for_the_client(start: Start) -> None:
    engine = start("vllm").ready()
    body = {**ASK, "max_tokens": 4000, "stream": True}
    with httpx.stream("POST", engine.url + "/v1/completions", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        next(lines)
        engine.process.terminate()
        until(lambda: "Waiting for connections to close." in engine.log, "waiting")
        until(lambda: len(engine.processes()) == 1, "engine and workers are gone")
        engine.process.terminate()
        time.sleep(0.2)
        assert engine.process.poll() is None
    assert engine.wait() == 0


def test_shutdown_timeout_drains(start: Start) -> None:
    engine = start("vllm", [*VLLM_EAGLE3, "--shutdown-timeout", "10"]).ready()
    body = {**ASK, "max_tokens": 100, "stream": True}
    with httpx.stream("POST", engine.url + "/v1/completions", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        next(lines)
        engine.process.terminate()
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert engine.wait() == 0


def test_without_its_api_server_the_engine_lives_on_until_the_group_is_signalled(
    start: Start,
) -> None:
    engine = start("vllm").ready()
    titles = engine.titles()
    engine.process.kill()
    engine.wait()
    time.sleep(0.3)
    orphans = {titles["VLLM::EngineCore"], titles["VLLM::Worker"]}
    assert set(engine.processes()) == orphans
    os.killpg(engine.process.pid, signal.SIGTERM)
    until(lambda: not engine.processes(), "the orphans are gone")


def test_sigterm_while_starting_is_not_obeyed(start: Start) -> None:
    engine = start("vllm", EAGLEMON_SIM_SPEED="8")
    until(lambda: "Initializing a V1 LLM engine" in engine.log, "start")
    os.killpg(engine.process.pid, signal.SIGTERM)
    engine.ready()
    assert engine.get("/health").status_code == 200


def test_a_killed_worker_ends_all_with_0(start: Start) -> None:
    engine = start("vllm", EAGLEMON_SIM_SPEED="5").ready()
    os.kill(engine.titles()["VLLM::Worker"], signal.SIGKILL)
    until(lambda: "EngineDeadError" in engine.log, "noticed")
    assert engine.status(lambda: engine.get("/health")) in {503, None}
    assert engine.status(lambda: engine.post("/v1/completions", ASK)) in {500, None}
    assert engine.wait() == 0
    assert "Worker proc VllmWorker-0 died unexpectedly (exit code: None)" in engine.log
    assert "EngineCore encountered a fatal error." in engine.log
    until(lambda: not engine.processes(), "no process is left")


def test_crash_at_the_first_request(start: Start) -> None:
    engine = start("vllm", EAGLEMON_SIM_FAULT="crash-first-request").ready()
    answer = engine.post("/v1/completions", ASK)
    assert answer.status_code == 500
    assert answer.json()["error"]["message"].startswith("EngineCore encountered an issue.")
    assert engine.wait() == 0
    assert "RuntimeError: shape '[-1, 384]' is invalid" in engine.log
    assert engine.log.index("WorkerProc hit an exception.") < engine.log.index("EngineDeadError")


@pytest.mark.parametrize(
    ("arguments", "fault", "status", "text"),
    [
        ([*VLLM_EAGLE3, "--nope"], "", 2, "vllm: error: unrecognized arguments: --nope"),
        (["serve", "/models/missing"], "", 1, "Repo id must be in the form"),
        (VLLM_EAGLE3, "bind", 1, "OSError: [Errno 98] Address already in use"),
        (VLLM_EAGLE3, "oom", 1, "torch.OutOfMemoryError: CUDA out of memory."),
        (
            ["serve", "/models/t", "--gpu-memory-utilization", "0.12"],
            "",
            1,
            "larger than the available KV cache memory",
        ),
        (VLLM_EAGLE3, "crash-ready", 0, "Worker proc VllmWorker-0 died unexpectedly"),
    ],
)
def test_ends(start: Start, arguments: list[str], fault: str, status: int, text: str) -> None:
    engine = start("vllm", arguments, EAGLEMON_SIM_FAULT=fault)
    assert engine.wait() == status
    assert text in engine.log
    if fault == "oom":
        assert engine.lines[-1].startswith("RuntimeError: Engine core initialization failed.")
    until(lambda: not engine.processes(), "no process is left")


def test_a_taken_gpu_is_refused(start: Start) -> None:
    start("vllm").ready()
    second = start("vllm")
    assert second.wait() == 1
    assert "on startup is less than desired GPU memory utilization (0.92" in second.log


def test_a_hung_engine_is_healthy_but_silent(start: Start) -> None:
    engine = start("vllm", EAGLEMON_SIM_FAULT="hang").ready()
    core = Path(f"/proc/{engine.titles()['VLLM::EngineCore']}/stat")
    until(lambda: core.read_text().rsplit(")", 1)[1].split()[0] == "T", "stopped")
    assert engine.get("/health").status_code == 200
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            engine.url + "/v1/completions", json=ASK, timeout=httpx.Timeout(LIMIT_S, read=1.0)
        )


def test_many_at_once(start: Start) -> None:
    engine = start("vllm").ready()
    done: list[int] = []

    def ask(number: int) -> None:
        body = {**ASK, "prompt": f"question {number}"}
        answer = engine.post("/v1/completions", body).json()
        done.append(answer["usage"]["completion_tokens"])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert done == [40] * 24
