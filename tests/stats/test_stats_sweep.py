from dataclasses import replace

from eaglemon.core.experiment import Arm, ExperimentPlan
from eaglemon.core.sweep import Combination, best_line, best_of, combinations, hopeless
from tests.experiments.arms import arm
from tests.stats.trials import trial


def test_combinations_are_valid_and_named_once() -> None:
    found, skipped = combinations([1, 3, 3], [1, 4], None)
    assert [one.name for one in found] == [
        "baseline",
        "steps=1",
        "steps=3",
        "steps=1 topk=4 tokens=5",
        "steps=3 topk=4 tokens=16",
    ]
    assert skipped == []
    assert found[2].settings == {"steps": "3", "topk": "1", "draft-tokens": "4"}


def test_what_is_skipped_is_told_with_its_reason() -> None:
    found, skipped = combinations([0, 2], [1, 2], [3, 3, 9])
    reasons = {(one.combination.steps, one.combination.topk): one.reason for one in skipped}
    assert [one.name for one in found] == ["baseline", "steps=2", "steps=2 topk=2 tokens=3"]
    assert reasons[0, 1] == "steps and topk begin at 1"
    assert reasons[2, 1] == "a chain of 2 verifies 3 tokens, whatever is asked"
    assert reasons[2, 2] == "a tree of 2 steps with topk 2 has only 7 tokens"
    assert Combination(steps=0).settings == {"speculation": "none"}


def sweep(*arms: Arm) -> ExperimentPlan:
    return ExperimentPlan(id="sweep-1", kind="sweep", arms=arms)


def test_a_surely_slower_arm_is_given_up_and_its_higher_concurrency_too() -> None:
    short, long = arm("short", steps=1), arm("long", steps=7)
    plan = sweep(
        arm("base"),
        short,
        replace(arm("long x1", steps=7), server_key=long.server_key),
        replace(arm("long x8", steps=7, concurrency=8), server_key=long.server_key),
        arm("near", steps=3),
    )
    trials = [
        trial(0, 0, [60.0 + i for i in range(8)]),
        trial(1, 0, [100.0 + i for i in range(8)]),
        trial(2, 0, [70.0 + i for i in range(8)]),
        trial(4, 0, [97.0 + i * 1.5 for i in range(8)]),
    ]
    found = hopeless(plan, trials)
    assert set(found) == {2, 3}
    assert found[2].startswith("at most 0.7")
    assert found[3].endswith("already at long x1")


def test_the_best_of_each_concurrency_is_named_with_its_margin() -> None:
    plan = sweep(
        arm("base"),
        arm("steps=3", steps=3),
        arm("steps=5", steps=5),
        arm("base x8", concurrency=8),
        arm("steps=3 x8", steps=3, concurrency=8),
    )
    speeds = {0: 100.0, 1: 150.0, 2: 130.0, 3: 80.0, 4: 80.2}
    trials = [
        trial(
            index, number, [speed * (1 + 0.02 * ((i * 7 + index + number) % 5)) for i in range(12)]
        )
        for index, speed in speeds.items()
        for number in range(2)
    ]
    first, second = best_of(plan, trials, draws=1000)
    names = [one.name for one in plan.arms]
    assert names[first.arm] == "steps=3"
    text = best_line(first, names)
    assert text.startswith("at 1 at a time the best is steps=3: 1.50 x base")
    assert "ahead of steps=5 by 15 %" in text
    assert "not told apart from" in best_line(second, names)
    # Two rivals: each interval covers more than 95 %, so that both hold together.
    assert first.over_next is not None
    assert first.over_next.ratio is not None
    assert first.over_next.ratio.level == 0.975
