"""Logs found in public repositories, read where they lie: they are other people's files."""

import csv
from pathlib import Path

import pytest

from eaglemon.core.diagnosis import Outcome, diagnose
from eaglemon.engines import ENGINES

CASES = Path(__file__).parents[3] / "shared" / "cases"

pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="the collection of public logs is not beside this repository"
)

# The words of the index, and ours.
PHASES = {
    "argument check": {"import"},
    "argument parse": {"import"},
    "import": {"import"},
    "import/config": {"import"},
    "tokenizer load": {"import"},
    "device init": {"distributed-init"},
    "distributed init": {"distributed-init"},
    "loading weights": {"load-target"},
    "draft load": {"load-draft"},
    "memory profiling": {"kv-cache"},
    "KV cache": {"kv-cache"},
    "CUDA graph capture": {"graph-capture"},
    "CUDA graph capture (draft extend)": {"graph-capture"},
    "kernel compile": {"kv-cache", "graph-capture"},
    "warm-up": {"warm-up"},
    "ready": {"ready", "serving"},
    "first request": {"ready", "serving"},
    "decode": {"serving"},
    "serving": {"serving"},
}
OUTCOMES = {
    "ready": {Outcome.READY},
    "failed": {Outcome.FAILED, Outcome.CRASHED},
    "running": {Outcome.STARTING, Outcome.READY},
    "stalled": {Outcome.STALLED, Outcome.FAILED, Outcome.STARTING},
}
SHARE = 0.95


def test_public_logs() -> None:
    with (CASES / "index.tsv").open(encoding="utf-8") as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    wrong: dict[str, list[str]] = {"phase": [], "outcome": [], "cause": [], "decisive line": []}
    for row in rows:
        diagnosis = diagnose(
            (CASES / row["file"]).read_bytes(),
            engine=row["engine"],
            rules=ENGINES[row["engine"]].log_rules,
        )
        cause = row["cause"]
        outcomes = OUTCOMES[row["outcome"]]
        if cause == "terminated-by-signal":
            outcomes = {Outcome.STOPPED}
        right = {
            "phase": diagnosis.phase.value in PHASES[row["phase_at_last_line"]],
            "outcome": diagnosis.outcome in outcomes,
            "cause": (diagnosis.cause or "-") == cause,
            "decisive line": cause == "-"
            or row["decisive_line"] in (diagnosis.decisive_line or ""),
        }
        for what, fits in right.items():
            if not fits:
                wrong[what].append(row["file"])
        # The two mistakes that nobody may make.
        if row["outcome"] == "ready":
            assert diagnosis.outcome not in {Outcome.FAILED, Outcome.CRASHED}, row["file"]
        if row["outcome"] == "failed" and row["phase_at_last_line"] not in {"serving"}:
            assert diagnosis.outcome is not Outcome.READY, row["file"]
    for what, files in wrong.items():
        share = 1 - len(files) / len(rows)
        assert share >= SHARE, f"{what}: {share:.1%} right, wrong in {', '.join(files)}"
