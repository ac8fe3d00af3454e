"""``eaglemon diagnose``: its document, the engine recognised, remedies that the log refutes."""

import csv
import json
from pathlib import Path

import pytest

from eaglemon.core.diagnosis import Outcome
from eaglemon.engines import ENGINES
from eaglemon.engines.reading import (
    engine_of_log,
    exit_in,
    exit_of,
    read_log,
    remedy_that_holds,
    settings_in,
)
from eaglemon.errors import UsageError
from tests.cli.conftest import CommandLine, home, run  # noqa: F401 -- fixtures

CAPTURES = Path(__file__).parents[1] / "captures"
CASES = Path(__file__).parents[3] / "shared" / "cases"
LOGS = {
    "sglang": sorted((CAPTURES / "sglang-0.5.16-h200").glob("*/server.log")),
    "vllm": sorted((CAPTURES / "vllm-0.32-cpu").glob("*.log")),
}
KEYS = {
    "engine",
    "outcome",
    "phase",
    "timeline",
    "cause",
    "decisive_line",
    "line_number",
    "remedy",
    "exit",
    "acceptance",
}
# The words of the public index, and ours.
OUTCOMES = {
    "ready": {Outcome.READY},
    "failed": {Outcome.FAILED, Outcome.CRASHED},
    "running": {Outcome.STARTING, Outcome.READY},
    "stalled": {Outcome.STALLED, Outcome.FAILED, Outcome.STARTING},
}
SHARE = 0.95


@pytest.mark.parametrize("engine", LOGS)
def test_the_engine_is_recognised(engine: str) -> None:
    assert len(LOGS[engine]) >= 11
    for log in LOGS[engine]:
        assert engine_of_log(log.read_bytes()).name == engine, log


def test_a_log_of_nobody_is_refused(run: CommandLine, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "x.log"
    path.write_text("hello\n")
    result = run("diagnose", str(path))
    assert result.code == 2
    assert "--engine" in result.err
    assert run("diagnose", str(tmp_path / "none.log")).code == 2
    with pytest.raises(UsageError):
        engine_of_log(b"")


def test_the_document_has_every_key(run: CommandLine) -> None:  # noqa: F811
    for engine, logs in LOGS.items():
        for log in logs:
            document = run("diagnose", str(log), "--json").document
            assert set(document) >= KEYS, log
            assert document["engine"] == engine
            assert document["outcome"] in {outcome.value for outcome in Outcome}
            assert run("diagnose", str(log)).code == 0


def test_a_failure_with_its_line_and_remedy(run: CommandLine) -> None:  # noqa: F811
    log = CAPTURES / "sglang-0.5.16-h200" / "fail-oom" / "server.log"
    document = run("diagnose", str(log), "--json", "--exit-code", "-9").document
    assert document["outcome"] == "failed"
    assert document["cause"] == "kv-cache-no-memory"
    assert document["exit"] == {"code": None, "signal": "SIGKILL"}
    text = run("diagnose", str(log)).out
    assert f"line {document['line_number']}:" in text
    assert "remedy:" in text
    assert next(view["phase"] for view in document["timeline"]) == "import"


def test_acceptance_of_a_ready_server(run: CommandLine) -> None:  # noqa: F811
    log = CAPTURES / "sglang-0.5.16-h200" / "eagle3-right" / "server.log"
    document = run("diagnose", str(log), "--json").document
    assert document["acceptance"]["accept_length"] > 2
    assert document["acceptance"]["lines"] >= 1


@pytest.mark.parametrize(
    ("exit_code", "outcome"),
    [(None, "starting"), (1, "failed"), (-9, "failed"), (-15, "stopped"), (143, "stopped")],
)
def test_an_exit_that_the_log_does_not_tell(exit_code: int | None, outcome: str) -> None:
    start = b"[2026-01-01 10:00:00] Init torch distributed begin.\n"
    assert read_log(start, engine="sglang", exit_code=exit_code).outcome == outcome


def test_an_exit_that_the_log_tells() -> None:
    found = exit_in(b"Rank 0 scheduler died during initialization (exit code: -9). If exit code is")
    assert found == exit_of(-9)
    assert found is not None
    assert found.signal == "SIGKILL"
    assert exit_in(b"nothing") is None


@pytest.mark.parametrize(
    ("remedy", "log", "left"),
    [
        (
            "lower cuda-graph-max-bs-decode or mem-fraction-static, or switch the graphs off",
            b"ServerArgs(disable_cuda_graph=True, mem_fraction_static=0.8)",
            "mem-fraction-static",
        ),
        ("raise mem-fraction-static: it covers", b"mem_fraction_static=0.94", ""),
        ("raise mem-fraction-static: it covers", b"mem_fraction_static=0.5", None),
        ("raise gpu-memory-utilization, or use more GPUs", b"", None),
        (
            "raise gpu-memory-utilization, or use more GPUs",
            b"{'gpu_memory_utilization': 0.97}",
            "use more GPUs",
        ),
    ],
)
def test_a_remedy_that_the_log_refutes_is_not_given(
    remedy: str, log: bytes, left: str | None
) -> None:
    assert remedy_that_holds(remedy, settings_in(log)) == (remedy if left is None else left)


@pytest.mark.skipif(
    not CASES.is_dir(), reason="the collection of public logs is not beside the repository"
)
def test_public_logs_through_the_command(run: CommandLine) -> None:  # noqa: F811
    """Outcome and cause of other people's logs, read where they lie, engine not named."""
    with (CASES / "index.tsv").open(encoding="utf-8") as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    wrong = []
    for row in rows:
        result = run("diagnose", str(CASES / row["file"]), "--json")
        if result.code:
            wrong.append(row["file"])
            continue
        document = json.loads(result.out)
        outcomes = OUTCOMES[row["outcome"]]
        if row["cause"] == "terminated-by-signal":
            outcomes = {Outcome.STOPPED}
        right = (
            document["engine"] == row["engine"]
            and document["outcome"] in outcomes
            and (document["cause"] or "-") == row["cause"]
        )
        if not right:
            wrong.append(row["file"])
        if row["outcome"] == "ready":
            assert document["outcome"] not in {"failed", "crashed"}, row["file"]
    assert 1 - len(wrong) / len(rows) >= SHARE, wrong


def test_engines_have_different_words() -> None:
    assert set(LOGS) == set(ENGINES)
