"""Where lines of a log begin and which contain a text, found by the program sent to its host."""

import ast
import os
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from eaglemon.agent import logscan
from tests.agent.test_agent_source import STANDARD

SOURCE = Path(logscan.__file__).read_text()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logscan, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(logscan, "STEP_BYTES", 100)


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "log").touch()
    one = os.open(tmp_path / "log", os.O_RDWR)
    yield one
    os.close(one)


def made(seed: int) -> bytes:
    """Return a log with short, empty and endless lines, with or without a line feed at its end."""
    dice = random.Random(seed)
    lengths = [dice.choice([0, 1, 5, 20, 90, 300, 2500]) for _ in range(dice.randrange(60))]
    log = b"".join(bytes(dice.choices(b"abXY\r\0\xff", k=n)) + b"\n" for n in lengths)
    return log + (b"aB and no end" if seed % 3 == 0 else b"")


def written(handle: int, log: bytes) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, log, 0)


def places(handle: int, until: int) -> list[tuple[int, int]]:
    flat = [n for item in logscan.index(handle, until) for n in item["entries"]]
    return list(zip(flat[::2], flat[1::2], strict=True))


def found(handle: int, log: bytes, **job: Any) -> tuple[list[int], list[str]]:
    job = {"until": len(log), "line": log.count(b"\n"), "most": 10**9, **job}
    items = list(logscan.search(handle, job))
    texts = [text for item in items for text in item["texts"]]
    return [n for item in items for n in item["hits"]], texts


@pytest.mark.usefixtures("small")
def test_every_place_is_the_begin_of_its_line(handle: int) -> None:
    for seed in range(40):
        log = made(seed)
        written(handle, log)
        begins = [0, *(n + 1 for n, byte in enumerate(log) if byte == 10)]
        known = places(handle, len(log))
        assert all(begins[line] == offset for offset, line in known[:-1])
        lines = len(log.split(b"\n")) - (log.endswith(b"\n") or not log)
        assert known[-1] == (len(log), lines)
        for (begin, first), (end, after) in pairwise(known):
            assert end - begin <= 250 or after - first == 1, "an endless line stands alone"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("text", "fold"), [("aB", False), ("ab", True), ("\0", False)])
def test_a_search_finds_each_line_once_the_last_one_first(
    handle: int, text: str, *, fold: bool
) -> None:
    for seed in range(40):
        log = made(seed)
        written(handle, log)
        seen = log.lower() if fold else log
        lines = [n for n, line in enumerate(seen.split(b"\n")) if text.encode() in line]
        assert found(handle, log, text=text, ignore_case=fold)[0] == lines[::-1]


@pytest.mark.usefixtures("small")
def test_a_search_goes_no_further_up_than_was_wanted(handle: int) -> None:
    log = b"ab\n" * 1500
    written(handle, log)
    numbers, _ = found(handle, log, text="ab", ignore_case=True, **{"from": 3 * 700})
    assert numbers == list(range(1499, 699, -1))


def test_texts_come_with_their_hits_and_no_more_than_were_wanted(handle: int) -> None:
    long = b"x" * 10_000 + b"needle" + b"y" * 10_000
    log = b"one needle\nnothing\n" + long + b"\nlast needle"
    written(handle, log)
    numbers, texts = found(handle, log, text="needle", ignore_case=True, with_texts=True, most=2)
    assert numbers == [3, 2]
    assert texts[0] == "last needle"
    assert "needle" in texts[1]
    assert len(texts[1]) <= 2 * logscan.AROUND_BYTES


def test_a_log_that_became_shorter_is_told(handle: int) -> None:
    written(handle, b"short\n")
    with pytest.raises(logscan.ChangedError):
        list(logscan.index(handle, 100))


def test_it_runs_on_old_pythons_with_the_standard_library_alone() -> None:
    tree = ast.parse(SOURCE, feature_version=(3, 8))
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= set(STANDARD.split())
