"""Logs that are not what an engine writes: a garbled line costs its figures, never the reading."""

import random
import re
from pathlib import Path

import pytest

from eaglemon.core.diagnosis import FaultFold, Outcome, diagnose
from eaglemon.core.logs import LogReader, LogRule
from eaglemon.core.phases import DecodeStats, LogEvent, LogReady
from eaglemon.core.startup import StartupTrack
from eaglemon.engines import ENGINES

CAPTURES = Path(__file__).parents[1] / "captures"
LOGS = sorted(CAPTURES.rglob("*.log"))
SWAPS = (b".", b"..", b"9" * 400, b"9" * 5000, b"-", b"e", b"nan", b"\xd9\xa3", b"\x00", b"\r", b"")
NUMBER = re.compile(rb"\d+(?:\.\d+)?")


def _engine(log: Path) -> str:
    return "vllm" if "vllm" in str(log) else "sglang"


def _mutated(data: bytes, draw: random.Random) -> bytes:
    """The log with a twentieth of its numbers garbled, cut or doubled."""

    def garbled(match: re.Match[bytes]) -> bytes:
        text = match.group()
        if draw.random() > 0.05:
            return text
        at = draw.randrange(len(text) + 1)
        return text[:at] + draw.choice((*SWAPS, text, b"." + text)) + text[at:]

    return NUMBER.sub(garbled, data)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parent.name}-{log.stem}")
@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_logs_are_read_to_their_end(log: Path, seed: int) -> None:
    draw = random.Random(f"{log.name} {seed}")
    data = _mutated(log.read_bytes()[:120_000], draw)
    reader = LogReader(ENGINES[_engine(log)].log_rules)
    track, faults = StartupTrack(0.0), FaultFold()
    events: list[LogEvent] = []
    at = 0
    while at < len(data):
        step = draw.choice((1, 7, 100, 4096))
        events += reader.feed(data[at : at + step])
        at += step
    events += reader.close()
    assert reader.bytes_read == len(data)
    for event in events:
        track.apply(event, 1.0)
        faults.apply(event)
        if isinstance(event, DecodeStats):
            figures = (event.accept_length, event.accept_rate, event.tok_s, event.kv_used_fraction)
            assert all(one is None or one < 1e16 for one in (*figures, event.running or 0))
    track.views(2.0)


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        (
            "sglang",
            (
                b"[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 9, "
                b"token usage: 0.01, "
                b"accept len: 2.58.00, accept rate: 0.52, cuda graph: True, "
                b"gen throughput (token/s): 120.00, #queue-req: 0\n"
            ),
        ),
        ("vllm", b"SpecDecoding metrics: Mean acceptance length: 2.58.00, Accepted: 1\n"),
        (
            "vllm",
            (
                b"Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 1.2.3 tokens/s, "
                b"Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%\n"
            ),
        ),
    ],
)
def test_a_number_with_two_points_is_no_number(engine: str, line: bytes) -> None:
    reader = LogReader(ENGINES[engine].log_rules)
    events = reader.feed(line + b"The server is fired up and ready to roll!\n")
    stats = [event for event in events if isinstance(event, DecodeStats)]
    assert all(event.accept_length is None for event in stats)
    assert reader.lines_read == 2


def test_a_log_with_garbled_figures_keeps_its_outcome() -> None:
    log = CAPTURES / "sglang-0.5.16-h200" / "eagle3-right" / "server.log"
    garbled = re.sub(rb"accept len: ([\d.]+)", rb"accept len: \1.00", log.read_bytes())
    found = diagnose(garbled, engine="sglang", rules=ENGINES["sglang"].log_rules)
    whole = diagnose(log.read_bytes(), engine="sglang", rules=ENGINES["sglang"].log_rules)
    assert found.outcome is whole.outcome is Outcome.READY


def test_a_rule_that_cannot_read_its_line_counts_as_not_matching() -> None:
    def build(match: object, line: object) -> LogEvent:
        raise ValueError("2.58.00")

    rules = (
        LogRule(name="broken", contains="Figure ", build=build),
        LogRule(name="bar", contains="Bar ", pattern=re.compile("Bar"), build=build, bar=True),
        LogRule(name="often", contains="Often ", frequent=re.compile(b"Often"), read=_unreadable),
        LogRule(name="ready", contains="Ready", build=lambda match, line: LogReady()),
    )
    reader = LogReader(rules)
    events = reader.feed(b"Figure 1\nBar 1\nOften 1\nReady\n")
    assert any(isinstance(event, LogReady) for event in events)
    assert reader.garbled == 3


def _unreadable(match: re.Match[bytes]) -> LogEvent:
    raise ValueError("2.58.00")
