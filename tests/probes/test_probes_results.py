"""Results: figures, capacity, files, and the command that writes and compares them."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.plans import probe_plan
from eaglemon.cli.draft_diagnose import baseline_tok_s
from eaglemon.core.capacity import Capacity, capacity_of, differences
from eaglemon.core.probe import (
    Arrival,
    GeneratorHealth,
    ProbeFigures,
    ProbePlan,
    ProbeProgress,
    Prompt,
    RequestRecord,
    RequestStatus,
    figures_of,
    planned_requests,
)
from eaglemon.core.profiles import ProbeDefaults
from eaglemon.core.server_url import Trust
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io.probe_files import read_probes, write_probes
from eaglemon.io.workloads import load_workload
from tests.cli import conftest as command_line
from tests.cli.fake_console import FakeConsole
from tests.cli.fake_console import probe as fake_probe

home = command_line.home
run = command_line.run


def record(number: int, sent_at: float, *times: float, tokens: int = 2) -> RequestRecord:
    return RequestRecord(
        number=number,
        prompt_id=f"p{number}",
        status=RequestStatus.OK,
        sent_at=sent_at,
        took_s=times[-1],
        arrivals=tuple(Arrival(at_s=at, tokens=tokens) for at in times),
        completion_tokens=tokens * len(times),
    )


def test_the_steady_part_leaves_ramp_and_tail_out() -> None:
    records = [
        record(0, 0.0, 0.5, 1.0),
        record(1, 0.2, 0.5, 1.0),
        record(2, 1.0, 0.5, 1.0),
        record(3, 1.2, 0.5, 1.0),
        record(4, 2.0, 0.5, 3.0),
    ]
    figures = figures_of(records, users=2)
    # From 0.2, when both had begun, to 2.2, when one found nothing to do.
    assert figures.steady_tok_s == pytest.approx(2 * 8 / 2.0)
    assert figures.total_tok_s == pytest.approx(20 / 5.0)
    assert figures_of(records).steady_tok_s is None
    assert figures_of(records[:3], users=2).steady_tok_s is None


def test_what_one_user_sees_is_weighed_by_time() -> None:
    figures = figures_of([record(0, 0.0, 1.0, 2.0), record(1, 0.0, 1.0, 5.0)])
    assert figures.user_tok_s == pytest.approx(4 / 5.0)
    assert figures.token_time_s is not None
    assert figures.token_time_s.p99 == pytest.approx(2.0)


def test_requests_of_a_plan() -> None:
    prompts = tuple(Prompt(id=f"p{i}", text=str(i)) for i in range(5))
    plan = ProbePlan(workload="w", prompts=prompts, requests=7, concurrency=1, nonce="n")
    asked = planned_requests(plan, first=3, count=7)
    assert [one.prompt.id for one in asked] == ["p0", "p1", "p2", "p3", "p4", "p0", "p1"]
    assert [one.prefix for one in asked][:2] == ["[n-3] ", "[n-4] "]
    seeded = replace(plan, seed=7, nonce="")
    again = planned_requests(seeded, first=0, count=5)
    assert again == planned_requests(seeded, first=2, count=5)
    assert sorted(one.prompt.id for one in again) == ["p0", "p1", "p2", "p3", "p4"]
    assert [one.prompt.id for one in again] != ["p0", "p1", "p2", "p3", "p4"]
    assert {one.prefix for one in again} == {""}


def test_random_prompts_are_the_same_each_time() -> None:
    first = load_workload("random")
    assert first == load_workload("random")
    assert len({prompt.text for prompt in first}) == len(first) >= 40


def test_the_founding_story() -> None:
    """54.8 tok/s against 90.0 at an accept length of 1.05, as speculation.md C2 works it out."""
    found = Capacity(
        concurrency=1, accept_length=1.05, speculative_tok_s=54.8, baseline_tok_s=90.0, ceiling=4
    )
    assert found.overhead == pytest.approx(1.724, abs=0.001)
    assert found.speed_up == pytest.approx(0.609, abs=0.001)
    assert found.tok_s_at(1.05) == pytest.approx(54.8)
    assert found.tok_s_at(found.overhead) == pytest.approx(90.0)
    assert found.tok_s_at(2.75) == pytest.approx(143.5, abs=0.1)
    assert found.lengths() == (1.0, 2.0, 3.0, 4.0)


def test_capacity_needs_all_figures() -> None:
    fast = ProbeFigures(accept_length=3.0, user_tok_s=120.0)
    slow = ProbeFigures(user_tok_s=90.0)
    assert capacity_of(fast, slow, concurrency=1) is not None
    assert capacity_of(slow, fast, concurrency=1) is None
    assert capacity_of(fast, ProbeFigures(), concurrency=1) is None


def result(
    concurrency: int = 1, *, accept: float | None = 3.0, user: float = 120.0
) -> ProbeProgress:
    plan = ProbePlan(
        workload="chat",
        prompts=(Prompt(id="p0", text="x"),),
        requests=2,
        concurrency=concurrency,
    )
    records = (record(0, 0.0, 0.1, 0.3), replace(record(1, 0.1, 0.1), status=RequestStatus.CUT))
    figures = replace(
        figures_of(records), accept_length=accept, user_tok_s=user, per_position=(0.9, 0.6)
    )
    return ProbeProgress(
        server_id="s",
        plan=plan,
        state="done",
        done=2,
        elapsed_s=1.0,
        remaining_s=None,
        figures=figures,
        records=records,
        driver="the host itself",
        generator=GeneratorHealth(
            cpu_share=0.1, lag_median_s=0.0001, lag_p95_s=0.0002, lag_max_s=0.01
        ),
        notes=("a note",),
    )


def test_files_of_each_kind(tmp_path: Path) -> None:
    probes = (result(1), result(8))
    for name in ("r.json", "r.csv", "r.jsonl"):
        write_probes(tmp_path / name, probes)

    assert read_probes(tmp_path / "r.json") == probes
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [row["concurrency"] for row in rows] == ["1", "8"]
    assert (rows[0]["accept_length"], rows[0]["position_2"], rows[0]["cut"]) == ("3.0", "0.6", "1")
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [line["concurrency"] for line in lines] == [1, 1, 8, 8]
    assert lines[0]["arrivals"] == [{"at_s": 0.1, "tokens": 2}, {"at_s": 0.3, "tokens": 2}]
    assert [line["status"] for line in lines[:2]] == ["ok", "cut"]


def test_files_that_are_no_results(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"use \.json, \.csv, \.jsonl"):
        write_probes(tmp_path / "r.txt", ())
    with pytest.raises(UsageError, match="there is no folder"):
        write_probes(tmp_path / "no" / "r.json", ())
    with pytest.raises(ConfigError, match="no such file"):
        read_probes(tmp_path / "r.json")
    (tmp_path / "r.json").write_text('{"probes": 3}')
    with pytest.raises(ConfigError, match="holds no results of probes"):
        read_probes(tmp_path / "r.json")


def test_levels_give_a_result_each(run: command_line.CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "all.json"
    done = run("probe", "sglang", "--concurrency", "1,8", "--json", "--out", str(out))
    assert done.code == 0
    probes = done.document["probes"]
    assert [(one["plan"]["concurrency"], one["plan"]["requests"]) for one in probes] == [
        (1, 4),
        (8, 16),
    ]
    assert [one.plan.concurrency for one in read_probes(out)] == [1, 8]
    text = run("probe", "sglang", "--concurrency", "1,8", "--requests", "5").out
    assert "USERS" in text
    assert "by position at 8: 90 % 60 % 30 %" in text


def test_a_result_that_cannot_be_written_is_shown_all_the_same(
    run: command_line.CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full: minutes of measuring are not to be lost with it."""

    def full(path: Path, _: object) -> None:
        raise UsageError(f"{path}: cannot be written: no space left on device")

    monkeypatch.setattr("eaglemon.cli.probe.write_probes", full)
    done = run("probe", "sglang", "--out", str(tmp_path / "r.json"))
    assert done.code == 2
    assert "accept length" in done.out
    assert "no space left on device" in done.err


def test_settings_reach_the_plan(run: command_line.CommandLine) -> None:
    run(
        *("probe", "sglang", "--duration", "2m", "--seed", "3", "--flush", "--no-nonce"),
        *("--ignore-eos", "--temperature", "0.8", "--from", "here"),
    )
    asked = run.console.called("probe_plan")[0]
    assert {
        "duration_s": "120.0",
        "seed": "3",
        "flush": "true",
        "nonce": "false",
        "ignore_eos": "true",
        "temperature": "0.8",
        "from_host": "false",
    }.items() <= asked.items()  # type: ignore[attr-defined]


def test_an_address_is_asked_from_this_machine(
    run: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    done = run("probe", "http://127.0.0.1:30000", "--api-key-env", "KEY")
    assert done.code == 0
    assert [spec.name for spec in run.console.specs] == ["local"]
    asked = ("http://127.0.0.1:30000", "local", "s3cret", Trust())
    assert run.console.called("reach") == [asked]
    missing = run("probe", "http://127.0.0.1:30000", "--api-key-env", "NO_KEY")
    assert (missing.code, "not set" in missing.err) == (2, True)


def test_two_results_give_the_capacity(run: command_line.CommandLine, tmp_path: Path) -> None:
    fast, slow = tmp_path / "fast.json", tmp_path / "slow.json"
    good = replace(result(), figures=replace(result().figures, cut=0))
    write_probes(fast, [good])
    write_probes(
        slow, [replace(good, figures=replace(good.figures, accept_length=None, user_tok_s=90.0))]
    )

    done = run("probe", str(fast), "--against", str(slow))

    assert done.code == 0
    assert run.consoles == []
    assert "1.33 times, faster" in done.out
    assert "must be above 2.25, it is 3.00" in done.out
    capacity = run("probe", str(fast), "--against", str(slow), "--json").document["capacity"][0]
    assert capacity["overhead"] == pytest.approx(3.0 * 90 / 120)
    assert list(capacity["tok_s_at"]) == ["1", "2", "3"]
    assert "differs" not in done.err
    other = tmp_path / "other.json"
    write_probes(other, [result(8, accept=None)])
    none = run("probe", str(fast), "--against", str(other))
    assert "no level in common" in none.err


def test_a_baseline_that_speculates_is_refused(
    run: command_line.CommandLine, tmp_path: Path
) -> None:
    fast = tmp_path / "fast.json"
    write_probes(fast, [result()])
    done = run("probe", "sglang", "--against", str(fast))
    assert (done.code, done.out, run.consoles) == (2, "", [])
    assert "is no result without speculation: its own accept length is 3.00" in done.err


def test_what_else_differs_from_the_baseline_is_said(
    run: command_line.CommandLine, tmp_path: Path
) -> None:
    fast, slow = tmp_path / "fast.json", tmp_path / "slow.json"
    ours = replace(result(), engine="a", figures=replace(result().figures, cut=0))
    plan = replace(ours.plan, workload="code", max_tokens=64, temperature=0.7, ignore_eos=True)
    theirs = replace(result(accept=None, user=90.0), plan=plan, engine="b", driver="here")
    write_probes(fast, [ours])
    write_probes(slow, [theirs])

    done = run("probe", str(fast), "--against", str(slow))

    assert done.code == 0
    assert "engine: a and b; workload: chat and code; max tokens: 128 and 64;" in done.err
    assert "temperature: 0 and 0.7" in done.err
    same = replace(ours.plan, prompts_sha256="1")
    changed = replace(theirs, engine="", driver="", plan=replace(same, prompts_sha256="2"))
    assert differences(replace(ours, plan=same), changed) == (
        "prompts: both chat, but not the same ones",
    )


def test_a_probe_of_no_time_is_refused() -> None:
    with pytest.raises(UsageError, match="begins no request"):
        probe_plan(ProbeDefaults(), {"duration_s": "0"}, load_workload)


def test_calibration_that_cannot_be_is_told_first(run: command_line.CommandLine) -> None:
    asked: list[ProbePlan] = []

    def counting(console: FakeConsole) -> None:
        def probed(plan: ProbePlan) -> ProbeProgress:
            asked.append(plan)
            return fake_probe(plan)

        console.probed = probed

    done = run("probe", "sglang", "--calibrate", "--forced", "2", prepare=counting)
    assert done.code == 1
    assert "is not started again" in done.err
    assert asked == []
    assert run("probe", "sglang", "--forced", "2").code == 2


@pytest.mark.parametrize(
    ("lag_s", "kernel_share", "in_time"),
    [(0.001, 0.0, True), (0.004, 0.0, False), (0.004, 1.0, True), (0.02, 1.0, False)],
)
def test_when_first_tokens_are_in_time(lag_s: float, kernel_share: float, *, in_time: bool) -> None:
    health = GeneratorHealth(
        cpu_share=0.2,
        lag_median_s=0.0,
        lag_p95_s=lag_s,
        lag_max_s=lag_s,
        kernel_share=kernel_share,
    )
    assert health.in_time == in_time
    assert health.lagging == (lag_s > 0.003)


def test_a_diagnosis_takes_the_baseline_at_the_same_concurrency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, fast = tmp_path / "slow.json", tmp_path / "fast.json"
    write_probes(slow, [result(1, accept=None, user=90.0), result(8, accept=None, user=40.0)])
    write_probes(fast, [result(8)])
    assert baseline_tok_s(fast, slow) == 40.0
    assert capsys.readouterr().err == ""
    assert baseline_tok_s(result(4), slow) == 90.0
    assert "at a time: 4 and 1" in capsys.readouterr().err
    assert baseline_tok_s(None, None) is None
    with pytest.raises(UsageError, match="is no result without speculation"):
        baseline_tok_s(None, fast)
