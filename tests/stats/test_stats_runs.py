"""Two runs side by side: what is paired, what is fair, what is said where it is not."""

from dataclasses import replace

from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.experiment_records import Environment, ExperimentRecord
from eaglemon.core.profiles import ProbeDefaults
from eaglemon.core.run_comparison import compare_arms, compare_runs, history_of
from eaglemon.core.run_comparison_text import comparison_lines
from eaglemon.core.verdict import Verdict
from tests.experiments.arms import arm
from tests.stats.trials import trial

SPEEDS = tuple(100.0 + n for n in range(12))


def run(
    name: str, *, at: float, factor: float = 1.0, driver: str = "580.1", engine: str | None = None
) -> ExperimentRecord:
    arms = (arm("base"), arm("eagle", steps=3))
    environment = Environment(
        host="gpu-a",
        engine="sglang",
        gpus=("H200",),
        driver_version=driver,
        engine_version=engine,
    )
    return ExperimentRecord(
        plan=ExperimentPlan(id=name, arms=arms),
        created_at=at,
        environments={0: environment, 1: environment},
        trials=tuple(
            trial(n, number, [speed * factor * (1 + n) for speed in SPEEDS], accepted=100 * n)
            for n in (0, 1)
            for number in (0, 1)
        ),
    )


def test_arms_of_one_name_are_compared_the_earlier_run_first() -> None:
    found = compare_runs(run("new", at=90_000.0, factor=1.2), run("old", at=3600.0), draws=300)
    assert found.runs == ("old", "new")
    assert [pair.names for pair in found.pairs] == [
        ("old:base", "new:base"),
        ("old:eagle", "new:eagle"),
    ]
    for pair in found.pairs:
        assert pair.comparison is not None
        assert pair.comparison.verdict is Verdict.FASTER
        assert pair.comparison.ratio is not None
        assert abs(pair.comparison.ratio.value - 1.2) < 0.01
        assert pair.differences == ()
        for interval, figures in zip(pair.decode, pair.figures, strict=True):
            assert interval is not None
            assert figures.decode_tok_s is not None
            assert abs(interval.value / figures.decode_tok_s - 1) < 1e-6
            assert interval.low < interval.value < interval.high
    text = "\n".join(comparison_lines(found))
    assert "new:eagle is faster than old:eagle" in text
    assert "24 h" in text or "1 d" in text


def test_what_was_asked_differently_gets_no_verdict() -> None:
    one, other = run("old", at=0.0), run("new", at=60.0)
    changed = replace(
        other.plan.arms[1].profile, probe=ProbeDefaults(concurrency=8, max_tokens=512)
    )
    arms = (other.plan.arms[0], replace(other.plan.arms[1], profile=changed))
    other = replace(other, plan=replace(other.plan, arms=arms))
    pair = compare_arms(one, 1, other, 1, draws=50)
    assert pair.comparison is None
    assert pair.unfair == (
        "they were asked differently: requests at a time 1, then 8",
        "they were asked differently: longest answer 128, then 512",
    )
    assert compare_arms(one, 0, other, 0, draws=50).comparison is not None


def test_other_gpus_are_unfair_and_another_driver_is_noted() -> None:
    one = run("old", at=0.0)
    other = run("new", at=60.0, driver="590.2", engine="0.6")
    pair = compare_arms(one, 0, other, 0, draws=50)
    assert pair.comparison is not None
    assert pair.notes == ("engine: unknown, then 0.6", "driver: 580.1, then 590.2")
    gpus = {n: replace(env, gpus=("B200",)) for n, env in other.environments.items()}
    pair = compare_arms(one, 0, replace(other, environments=gpus), 0, draws=50)
    assert pair.unfair == ("the GPUs differ: H200, then B200",)
    assert pair.comparison is None


def test_an_arm_that_was_not_measured_says_why() -> None:
    one = run("old", at=0.0)
    other = replace(run("new", at=60.0), trials=(), failures={0: "oom: out of memory"})
    found = compare_runs(one, other, draws=50)
    assert [pair.unfair[0] for pair in found.pairs] == [
        "new:base was not measured: oom: out of memory",
        "new:eagle was not measured: it has no finished measurement",
    ]
    assert "not a fair comparison: new:base was not measured" in "\n".join(comparison_lines(found))


def test_arms_without_a_counterpart_are_named() -> None:
    one = run("old", at=0.0)
    arms = (arm("other"), arm("third"))
    other = replace(run("new", at=60.0), plan=ExperimentPlan(id="new", arms=arms))
    found = compare_runs(one, other, draws=50)
    assert (len(found.pairs), found.alone) == (
        0,
        ("old:base", "old:eagle", "new:other", "new:third"),
    )
    assert "no arm in common" in "\n".join(comparison_lines(found))


def test_the_history_of_a_profile_has_what_it_reached() -> None:
    found = history_of("base", [run("b", at=2.0), run("a", at=1.0)])
    assert [(one.run, one.at) for one in found] == [("b", 2.0), ("a", 1.0)]
    assert all(one.decode_tok_s for one in found)
    assert history_of("unknown", [run("a", at=1.0)]) == ()
