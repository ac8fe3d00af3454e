"""Events of a log: the same for every way to cut the bytes, each told once."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglemon.core.logs import LogReader, LogRule, rank_of
from eaglemon.core.phases import (
    DecodeStats,
    FaultSeen,
    LogEvent,
    NoteSeen,
    Phase,
    PhaseEntered,
    PhaseProgress,
)
from eaglemon.engines import ENGINES

CAPTURES = Path(__file__).parents[1] / "captures"
SGLANG = ENGINES["sglang"].log_rules
VLLM = ENGINES["vllm"].log_rules
LOGS = {
    "sglang": (SGLANG, CAPTURES / "sglang-0.5.16-h200" / "tp2-right-killrank" / "server.log"),
    "sglang-failed": (SGLANG, CAPTURES / "sglang-0.5.16-h200" / "fail-oom" / "server.log"),
    "vllm": (VLLM, CAPTURES / "vllm-0.32-cpu" / "ready-compile.log"),
    "vllm-failed": (VLLM, CAPTURES / "vllm-0.32-cpu" / "fail-draft-shape.log"),
}

DECODE = (
    b"Decode batch, #running-req: 1, #token: 2, token usage: 0.5, accept len: 2.5, "
    b"accept rate: 0.3, cuda graph: True, gen throughput (token/s): 9.5, #queue-req: 0"
)


def _events(rules: tuple[LogRule, ...], *chunks: bytes, limit: int = 65536) -> list[LogEvent]:
    reader = LogReader(rules, max_line_bytes=limit)
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()


@pytest.mark.parametrize("name", sorted(LOGS))
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 80_000), max_size=60), limit=st.sampled_from([200, 65536]))
def test_any_split_gives_the_same_events(name: str, cuts: list[int], limit: int) -> None:
    rules, path = LOGS[name]
    data = path.read_bytes()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(edges)]
    assert _events(rules, *chunks, limit=limit) == _events(rules, data, limit=limit)


@given(
    st.lists(
        st.sampled_from(
            [
                b"Load weight begin.",
                b"Loading shards:  50% Completed | 1/2 [00:00<00:01, 1s/it]",
                b"Capture target verify CUDA graph begin.",
                b"Capturing batches (bs=4):  10%|# | 1/9 [00:01<00:09, 1s/it]",
                DECODE,
                b"ValueError: no",
                b"\n",
                b"\r",
                b"\r\n",
                b" ",
                b"z" * 90,
            ]
        ),
        max_size=30,
    ).map(b"".join),
    st.lists(st.integers(0, 1500), max_size=20),
)
def test_glued_lines_at_any_split(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(edges)]
    assert _events(SGLANG, *chunks, limit=160) == _events(SGLANG, data, limit=160)


def test_bar_glued_to_a_periodic_line_at_any_split() -> None:
    log = DECODE + b"Capturing batches (bs=4): 10%|# | 1/9 [00:01<00:09, 1s/it] more\n"
    whole = _events(SGLANG, log)
    for cut in range(len(log)):
        assert _events(SGLANG, log[:cut], log[cut:]) == whole


def test_byte_by_byte() -> None:
    rules, path = LOGS["sglang-failed"]
    data = path.read_bytes()
    assert _events(rules, *[bytes([byte]) for byte in data]) == _events(rules, data)


def test_second_load_is_the_draft_for_each_rank() -> None:
    log = b"".join(
        b"[2026-11-29 15:27:0%d TP%d] Load weight begin. avail mem=1 GB\n" % (second, rank)
        for second, rank in ((1, 1), (2, 0), (3, 0), (4, 1))
    )
    assert _events(SGLANG, log)[1:] == [
        PhaseEntered(phase=Phase.LOAD_TARGET, stamp="2026-11-29 15:27:01"),
        PhaseEntered(phase=Phase.LOAD_DRAFT, stamp="2026-11-29 15:27:03"),
    ]


def test_bars_belong_to_what_is_in_progress_and_repeat_nothing() -> None:
    bar = b"\rCapturing batches (bs=%d): 1%%|# | %d/9 [00:01<00:09,  1s/it]"
    log = (
        b"Load weight begin.\n\rLoading shards: 50% Completed | 1/2 [00:01<?, ?it/s]\n"
        b"Load weight begin.\n\rLoading shards: 100% Completed | 1/1 [00:01<?, ?it/s]\n"
        b"Capture draft extend CUDA graph begin. x\n" + bar % (4, 1) + bar % (3, 1) + bar % (2, 2)
    )
    assert _events(SGLANG, log)[1:] == [
        PhaseEntered(phase=Phase.LOAD_TARGET),
        PhaseProgress(phase=Phase.LOAD_TARGET, done=1, total=2),
        PhaseEntered(phase=Phase.LOAD_DRAFT),
        PhaseProgress(phase=Phase.LOAD_DRAFT, done=1, total=1),
        PhaseEntered(phase=Phase.GRAPH_CAPTURE, stage="draft-extend"),
        PhaseProgress(phase=Phase.GRAPH_CAPTURE, stage="draft-extend", done=1, total=9),
        PhaseProgress(phase=Phase.GRAPH_CAPTURE, stage="draft-extend", done=2, total=9),
    ]


def test_standing_bar_is_told_before_its_line_ends() -> None:
    reader = LogReader(SGLANG)
    events = reader.feed(b"\rCapturing batches (bs=8):   2%|# | 1/42 [01:07<46:18, 67.76s/it]")
    assert PhaseProgress(phase=Phase.GRAPH_CAPTURE, done=1, total=42) in events
    assert reader.feed(b"\r") == []


def test_only_bars_without_any_phase_line() -> None:
    """With a quiet log level nothing but the bars is printed."""
    load = b"Loading %s checkpoint shards: %d%% Completed | %d/2 [00:01<00:01, 1s/it]\n"
    log = load % (b"safetensors", 50, 1) + load % (b"safetensors", 100, 2) + load % (b"pt", 50, 1)
    phases = [event.phase for event in _events(SGLANG, log) if isinstance(event, PhaseEntered)]
    assert phases == [Phase.IMPORT, Phase.LOAD_TARGET, Phase.LOAD_DRAFT]
    progress = [event for event in _events(SGLANG, log) if isinstance(event, PhaseProgress)]
    assert progress[-1] == PhaseProgress(phase=Phase.LOAD_DRAFT, done=1, total=2)


def test_figures_of_periodic_lines() -> None:
    old = (
        b"[2025-05-01 00:00:00] Decode batch. #running-req: 1, #token: 9, token usage: 0.01, "
        b"gen throughput (token/s): 12.50, #queue-req: 3\n"
    )
    hybrid = (
        b"Decode batch, #running-req: 2, #full token: 9, full token usage: 0.25, #swa token: 1, "
        b"swa token usage: 0.10, accept len: 2.75, accept rate: 0.12, cuda graph: True, "
        b"gen throughput (token/s): 70.0, #queue-req: 0,\n"
    )
    assert _events(SGLANG, old, hybrid)[1:] == [
        DecodeStats(tok_s=12.5, running=1, waiting=3, kv_used_fraction=0.01),
        DecodeStats(
            accept_length=2.75,
            accept_rate=0.12,
            tok_s=70.0,
            running=2,
            waiting=0,
            kv_used_fraction=0.25,
        ),
    ]
    spec = (
        b"INFO SpecDecoding metrics: Mean acceptance length: 2.75, Accepted throughput: 30.40 "
        b"tokens/s, Drafted: 1041 tokens, Per-position acceptance rate: 0.744, 0.576, 0.432, "
        b"Avg Draft acceptance rate: 58.4%\n"
    )
    [_, stats] = _events(VLLM, spec)
    assert isinstance(stats, DecodeStats)
    assert (stats.accept_length, stats.per_position) == (2.75, (0.744, 0.576, 0.432))
    assert stats.accept_rate == pytest.approx(0.584)


def _words(word: str, **more: object) -> LogRule:
    def build(match: re.Match[str] | None, line: object) -> NoteSeen:
        return NoteSeen(slug=word, text=match.group() if match else "")

    return LogRule(name=word, contains=word, build=build, **more)  # type: ignore[arg-type]


def test_rules_that_follow_others() -> None:
    rules = (
        LogRule(name="mark", contains="In the draft", marks="draft"),
        _words("Fault", after="draft"),
        _words("aul"),
    )
    reader = LogReader(rules)
    assert [e.slug for e in reader.feed(b"Fault\n") if isinstance(e, NoteSeen)] == ["aul"]
    events = reader.feed(b"In the draft\nFault\nFault\n")
    assert [e.slug for e in events if isinstance(e, NoteSeen)] == ["Fault"]
    assert (reader.lines_read, reader.bytes_read, reader.events_told) == (4, 31, 3)


def test_colours_inside_an_exception_line() -> None:
    """Python 3.13 and later colour the name and the message apart."""
    log = b"(APIServer pid=1) \x1b[1;35mKeyboardInterrupt\x1b[0m: \x1b[35mterminated\x1b[0m\n"
    faults = [event for event in _events(VLLM, log) if isinstance(event, FaultSeen)]
    assert faults[0].cause == "terminated-by-signal"
    assert faults[0].line == "(APIServer pid=1) KeyboardInterrupt: terminated"


def test_binary_and_endless_input_is_bounded() -> None:
    reader = LogReader(SGLANG, max_line_bytes=1000)
    for _ in range(100):
        reader.feed(b"\x00\xff" * 5000)
    assert reader.lines_read == 0
    assert reader.feed(b"Load weight begin\n") == []
    assert reader.feed(b"Load weight begin\n") != []


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[2026-11-29 15:26:37 TP0] Init", " TP0"),
        ("[2026-11-29 15:26:37 DP1 TP3 EP3] Init", " DP1 TP3 EP3"),
        ("(Worker_TP1 pid=3) INFO", " TP1"),
        ("[2026-11-29 15:26:37] Init TP1", ""),
        ("TP1", ""),
    ],
)
def test_ranks(text: str, rank: str) -> None:
    assert rank_of(text) == rank
