"""The simulated SGLang server as real processes."""

import itertools
import json
import os
import re
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from tests.sim.conftest import LIMIT_S, SGLANG_EAGLE3, Engine, Start, until

CAPTURED = Path(__file__).parent / "captured"
ASK: dict[str, object] = {
    "text": "What is speculative decoding?",
    "sampling_params": {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True},
}


def skeleton(line: str) -> str:
    """A line without stamp, numbers, lists and paths."""
    line = re.sub(r"^\[[^]]*\] ", "", line)
    line = re.sub(r"ServerArgs\(.*", "ServerArgs(", line)
    line = re.sub(r"\[[\d, ]+\]", "[]", line)
    line = re.sub(r"type=\w+ForCausalLM,", "type=ForCausalLM,", line)
    return re.sub(r"\d+(?:\.\d+)*", "0", line)


def events(text: str) -> list[dict[str, object]]:
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(part[6:]) for part in text.split("\n\n")[:-2]]


def captured_events(name: str) -> list[dict[str, object]]:
    pairs = json.loads((CAPTURED / name).read_text("utf-8"))
    return events("".join(text for _at, text in pairs))


def shape(value: object) -> object:
    """The keys of a JSON value, at every level."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in sorted(value.items())}
    return None


@pytest.mark.parametrize(
    ("captured", "arguments"),
    [
        ("sglang-eagle3-start.txt", [*SGLANG_EAGLE3, "--attention-backend", "triton"]),
        ("sglang-baseline-start.txt", ["--model-path", "/models/t", "--enable-metrics"]),
    ],
)
def test_the_start_up_log_follows_the_captured_one(
    start: Start, captured: str, arguments: list[str]
) -> None:
    engine = start("sglang", arguments).ready()
    stamped = [line for line in engine.lines if line.startswith("[20")]
    expected = (CAPTURED / captured).read_text("utf-8").splitlines()
    assert [skeleton(line) for line in stamped] == [skeleton(line) for line in expected]
    assert "\rMulti-thread loading shards:   0% Completed | 0/3 [00:00<?, ?it/s]" in engine.log
    assert re.search(
        r"\rCapturing batches \(bs=1 avail_mem=[\d.]+ GB\): 100%\|█{10}\| ", engine.log
    )


def test_processes_memory_and_the_late_port(start: Start) -> None:
    engine = start("sglang", [*SGLANG_EAGLE3, "--tp", "2"], CUDA_VISIBLE_DEVICES="4,6")
    until(lambda: "Load weight begin" in engine.log, "loading")
    engine.refuses_until("Started server process")
    engine.ready()
    titles = engine.titles()
    expected = {"sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"}
    assert expected < set(titles)
    assert len(titles) == 4
    memory = {
        path.stem: json.loads(path.read_text())["gpus"]
        for path in (engine.folder / "sim" / "memory").glob("*.json")
    }
    gpus = {int(pid): next(iter(held)) for pid, held in memory.items()}
    assert gpus == {titles["sglang::scheduler_TP0"]: "4", titles["sglang::scheduler_TP1"]: "6"}
    assert all(100 << 30 < next(iter(held.values())) < 140 << 30 for held in memory.values())


def test_health_answers_503_before_and_takes_a_second_after(start: Start) -> None:
    engine = start("sglang", EAGLEMON_SIM_SPEED="8")
    until(lambda: "Uvicorn running" in engine.log, "port")
    early = engine.get("/health").status_code
    # A busy machine may have let it get ready meanwhile.
    assert early == 503 or "fired up and ready" in engine.log
    assert engine.get("/model_info").status_code == 200
    engine.ready()
    began = time.monotonic()
    assert engine.get("/health").status_code == 200
    assert time.monotonic() - began >= 1.0
    assert early == 200 or '"GET /health HTTP/1.1" 503 Service Unavailable' in engine.log
    assert "#new-token: 1," in engine.log


def test_answers_have_the_captured_fields(start: Start) -> None:
    engine = start("sglang").ready()
    streamed = engine.post("/generate", {**ASK, "stream": True}).text
    found = events(streamed)
    captured = captured_events("sglang-stream-generate.json")
    assert shape(found[0]) == shape(captured[0])
    assert shape(found[1]) == shape(captured[1])
    assert shape(found[-1]) == shape(captured[-1])
    meta = found[-1]["meta_info"]
    assert isinstance(meta, dict)
    histogram = meta["spec_correct_drafts_histogram"]
    assert sum(histogram) == meta["spec_verify_ct"]
    assert sum(k * n for k, n in enumerate(histogram)) == meta["spec_num_correct_drafts"]
    assert meta["completion_tokens"] == 40
    texts = [str(event["text"]) for event in found]
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    whole = engine.post("/generate", ASK).json()
    assert whole["text"] == texts[-1]
    assert whole["meta_info"]["spec_verify_ct"] == meta["spec_verify_ct"]

    chat = {
        "model": "x",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 12,
        "ignore_eos": True,
        "temperature": 0,
    }
    usage = {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    found = events(engine.post("/v1/chat/completions", {**chat, **usage}).text)
    captured = captured_events("sglang-stream-chat-cont.json")
    assert [shape(found[index]) for index in (0, 1, -2, -1)] == [
        shape(captured[index]) for index in (0, 1, -2, -1)
    ]
    pairs = json.loads((CAPTURED / "sglang-chat.json").read_text("utf-8"))
    answer = engine.post("/v1/chat/completions", {**chat, "return_meta_info": True}).json()
    assert shape(answer) == shape(json.loads(pairs[0][1]))
    found = events(engine.post("/v1/completions", {"prompt": "hi", "stream": True}).text)
    assert shape(found[0]) == shape(captured_events("sglang-stream-completions.json")[0])

    for name in ("model_info", "v1_models"):
        path = "/" + name.replace("v1_", "v1/")
        captured_body = json.loads((CAPTURED / f"sglang-{name}.json").read_text("utf-8"))
        assert shape(engine.get(path).json()) == shape(captured_body)
    info = engine.get("/server_info").json()
    assert info["speculative_num_draft_tokens"] == 6
    assert info["internal_states"][0]["memory_usage"]["token_capacity"] > 0
    assert engine.post("/generate", {"sampling_params": {}}).json() == {
        "error": {"message": "Either text, input_ids or input_embeds should be provided."}
    }
    assert engine.post("/generate", {"input_ids": [1] * 9000}).status_code == 400


def test_metrics_have_real_names_and_move_when_a_request_ends(start: Start) -> None:
    engine = start("sglang").ready()

    def counter(name: str) -> float:
        match = re.search(rf"^sglang:{name}\{{.*\}} (\S+)$", engine.get("/metrics").text, re.M)
        return float(match.group(1)) if match else 0.0

    long: dict[str, object] = {
        **ASK,
        "sampling_params": {"max_new_tokens": 250, "ignore_eos": True, "temperature": 0},
        "stream": True,
    }
    with httpx.stream("POST", engine.url + "/generate", json=long, timeout=30) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert counter("generation_tokens_total") == 0
        until(lambda: counter("spec_accept_length") > 1, "a decode line's gauges")
        assert counter("num_running_reqs") == 1
        last = [line for line in lines if line.startswith("data: {")][-1]
    verifies = json.loads(last[6:])["meta_info"]["spec_verify_ct"]
    assert counter("generation_tokens_total") == 250
    assert counter("spec_verify_calls_total") == verifies
    until(lambda: counter("num_running_reqs") == 0, "idle gauges")
    known = set((CAPTURED / "sglang-metrics-names.txt").read_text("utf-8").splitlines())
    for line in engine.get("/metrics").text.splitlines():
        if not line.startswith("#"):
            name, labels = re.match(r"([\w:]+)(?:\{(.*)\})? ", line).groups()  # type: ignore[union-attr]
            keys = sorted(set(re.findall(r'(\w+)="', labels or "")) - {"le"})
            assert f"{name} {','.join(keys)}" in known
    assert re.search(
        r"Decode batch, #running-req: 1, #token: \d+, token usage: 0.00, accept len: \d\.\d\d, "
        r"accept rate: 0\.\d\d, cuda graph: True, gen throughput \(token/s\): [\d.]+, "
        r"#queue-req: 0",
        engine.log,
    )
    loads = engine.get("/v1/loads").json()
    captured = json.loads((CAPTURED / "sglang-v1_loads.json").read_text("utf-8"))
    assert set(loads["loads"][0]) == set(captured["loads"][0]) - {"disaggregation"}


def test_the_founding_story_in_tokens_per_second(start: Start) -> None:
    """Right draft, no draft, wrong draft: decode speed as a client measures it."""
    wrong = [word.replace("/models/draft", "/models/draft-wrong") for word in SGLANG_EAGLE3]
    sampling = {"max_new_tokens": 110, "ignore_eos": True, "temperature": 0}
    for name, arguments, least, most in (
        ("right", SGLANG_EAGLE3, 1.2 * 90, 6 * 90),
        ("baseline", ["--model-path", "/models/t"], 0.85 * 90, 1.05 * 90),
        ("wrong", wrong, 0.85 * 55, 1.1 * 55),
    ):
        engine = start("sglang", arguments).ready()
        body: dict[str, object] = {"text": name, "sampling_params": sampling}

        def speed(engine: Engine = engine, body: dict[str, object] = body) -> float:
            meta = engine.post("/generate", body).json()["meta_info"]
            return float(meta["decode_throughput"])

        # A busy machine delays some requests, or the first token of some: one of several is as set.
        found = [speed()]
        while not least < found[-1] < most:
            assert len(found) < 20, (name, found)
            found.append(speed())
        engine.end()


def test_sigterm_drains_and_the_process_kills_itself(start: Start) -> None:
    engine = start("sglang").ready()
    with httpx.stream("POST", engine.url + "/generate", json={**ASK, "stream": True}) as answer:
        lines = answer.iter_lines()
        next(lines)
        engine.process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert engine.wait() == -signal.SIGKILL
    assert "SIGTERM received. signum=None frame=None. Draining requests" in engine.log
    assert "Gracefully exiting... Remaining number of requests 0." in engine.log
    assert "kill_process_tree called" in engine.lines[-1]
    until(lambda: not engine.processes(), "no process is left")


def test_sigint_ends_with_0(start: Start) -> None:
    engine = start("sglang").ready()
    engine.process.send_signal(signal.SIGINT)
    assert engine.wait() == 0
    until(lambda: not engine.processes(), "no process is left")


def test_children_die_with_the_main_process(start: Start) -> None:
    engine = start("sglang").ready()
    engine.process.kill()
    assert engine.wait() == -signal.SIGKILL
    until(lambda: not engine.processes(), "children follow")


def test_a_killed_scheduler_brings_all_down(start: Start) -> None:
    engine = start("sglang").ready()
    scheduler = engine.titles()["sglang::scheduler"]
    os.kill(scheduler, signal.SIGKILL)
    assert engine.wait() == -signal.SIGKILL
    crashed = f"Subprocess scheduler_0 (pid={scheduler}) crashed with exit code -9. Triggering"
    assert crashed in engine.log
    until(lambda: not engine.processes(), "no process is left")


def test_a_taken_port_leaves_a_live_process_with_its_memory(start: Start) -> None:
    engine = start("sglang", EAGLEMON_SIM_SPEED="10")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", engine.port))
        taken.listen()
        line = f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {engine.port})"
        until(lambda: f"] ERROR:    {line}: address already in use" in engine.log, line)
    assert engine.process.poll() is None
    assert "sglang::scheduler" in engine.titles()
    engine.process.terminate()
    assert engine.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        (
            "oom",
            -signal.SIGKILL,
            "Capture cuda graph failed: CUDA out of memory. Tried to allocate",
        ),
        ("crash-ready", -signal.SIGKILL, "crashed with exit code -9"),
    ],
)
def test_faults_that_end_it(start: Start, fault: str, status: int, text: str) -> None:
    engine = start("sglang", EAGLEMON_SIM_FAULT=fault)
    assert engine.wait() == status
    assert text in engine.log
    assert "kill_process_tree called" in engine.lines[-1]
    until(lambda: not engine.processes(), "no process is left")


def test_no_memory_for_the_kv_cache_needs_no_fault(start: Start) -> None:
    engine = start("sglang", ["--model-path", "/models/t", "--mem-fraction-static", "0.0001"])
    assert engine.wait() == -signal.SIGKILL
    assert "Scheduler hit an exception: Traceback (most recent call last):" in engine.log
    assert "under --mem-fraction-static=0.0001. Raise --mem-fraction-static above" in engine.log
    assert "Received sigquit from a child process." in engine.log


def test_two_servers_do_not_fit_on_one_gpu(start: Start) -> None:
    start("sglang").ready()
    second = start("sglang")
    assert second.wait() == -signal.SIGKILL
    assert "torch.OutOfMemoryError: CUDA out of memory." in second.log


def test_crash_at_the_first_request(start: Start) -> None:
    engine = start("sglang", EAGLEMON_SIM_FAULT="crash-first-request").ready()
    assert engine.get("/health").status_code == 200
    with pytest.raises(httpx.HTTPError):
        engine.post("/generate", ASK)
    assert engine.wait() == -signal.SIGKILL
    assert "CUDA error: an illegal memory access was encountered" in engine.log


def test_a_hung_scheduler(start: Start) -> None:
    engine = start("sglang", EAGLEMON_SIM_FAULT="hang").ready()
    scheduler = engine.titles()["sglang::scheduler"]
    state = Path(f"/proc/{scheduler}/stat")
    until(lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T", "stopped")
    with pytest.raises(httpx.ReadTimeout):
        engine.get("/health", 2.0)
    with pytest.raises(httpx.ReadTimeout):
        engine.get("/server_info", 0.3)
    assert engine.get("/metrics").status_code == 200
    assert engine.get("/model_info").status_code == 200


def test_stall_no_log_and_ignored_sigterm(start: Start) -> None:
    stalled = start("sglang", EAGLEMON_SIM_FAULT="stall,ignore-term")
    silent = start("sglang", EAGLEMON_SIM_FAULT="no-log", CUDA_VISIBLE_DEVICES="1")
    until(lambda: "Capture target prefill CUDA graph end" in stalled.log, "the last line")
    size = stalled.log_path.stat().st_size
    stalled.process.terminate()
    until(lambda: _answers(silent), "the silent one is ready")
    assert silent.log == ""
    assert stalled.log_path.stat().st_size == size
    assert stalled.process.poll() is None


def _answers(engine: object) -> bool:
    try:
        return httpx.get(f"{engine.url}/health", timeout=LIMIT_S).status_code == 200  # type: ignore[attr-defined]
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--bogus"], 2, "sglang serve: error: "),
        ([*SGLANG_EAGLE3, "--bogus", "3"], 2, "error: unrecognized arguments: --bogus 3"),
        (["--model-path", "/models/missing"], 1, "OSError: Repo id must be in the form"),
    ],
)
def test_it_ends_before_it_takes_memory(
    start: Start, arguments: list[str], status: int, text: str
) -> None:
    engine = start("sglang", arguments)
    assert engine.wait() == status
    assert text in engine.lines[-1]
    assert not list((engine.folder / "sim" / "memory").iterdir())
