"""Verdicts: what they rest on, how often they are wrong, and what they are able to see."""

import math
import statistics
from random import Random

import pytest

from eaglemon.core.stats import Interval
from eaglemon.core.verdict import (
    Comparison,
    Verdict,
    arm_figures,
    compare,
    findings_of,
    narrow_enough,
    sentence,
)
from tests.stats.trials import simulated, trial

RUNS = 1200


def test_equal_arms_are_called_faster_at_most_1_time_in_20() -> None:
    """The stop rule included: the experiment looks after rounds 2 and 3 and may end there."""
    rng, verdicts = Random(11), dict.fromkeys(Verdict, 0)
    for _ in range(RUNS):
        trials = simulated(rng, ratio=1.0, prompts=12, rounds=3, prompt_sd=0.1, restart_sd=0.02)
        found = findings_of(trials[:4], (False, True), seed=rng.randrange(1 << 30), draws=1000)
        if not narrow_enough(found, 0.08):
            found = findings_of(trials, (False, True), seed=rng.randrange(1 << 30), draws=1000)
        verdicts[found.comparisons[0].verdict] += 1
    assert verdicts[Verdict.FASTER] / RUNS <= 0.05
    assert verdicts[Verdict.SLOWER] / RUNS <= 0.05
    assert verdicts[Verdict.NO_DIFFERENCE] / RUNS >= 0.92


def test_a_difference_of_the_stated_smallest_effect_is_mostly_seen() -> None:
    rng, seen, runs = Random(5), 0, 150
    # 16 prompts, 10 % spread between them: 2.8 * 0.1 / sqrt(16) = 7 %, more for 2 rounds' drift.
    for _ in range(runs):
        trials = simulated(rng, ratio=1.09, prompts=16, rounds=2, prompt_sd=0.1, restart_sd=0.001)
        found = compare(trials, 1, 0, rng=rng, draws=1000)
        assert found.smallest_effect is not None
        assert 0.04 < found.smallest_effect < 0.2
        seen += found.verdict is Verdict.FASTER
    assert seen / runs >= 0.75


def test_a_slow_round_is_no_noise_where_arms_are_compared_within_it() -> None:
    """Four equal arms on a computer whose speed changes by half from round to round."""
    rng, verdicts, runs = Random(8), dict.fromkeys(Verdict, 0), 300
    widths = []
    for _ in range(runs):
        trials = []
        for number in range(2):
            slow = rng.gauss(0, 0.5)
            for index in range(4):
                drift = slow + rng.gauss(0, 0.01)
                logs = [4.6 + drift + rng.gauss(0, 0.05) for _ in range(12)]
                trials.append(trial(index, number, [math.exp(value) for value in logs]))
        found = compare(trials, 1, 0, rng=rng, draws=1000)
        verdicts[found.verdict] += 1
        assert found.ratio is not None
        widths.append(found.ratio.half_width)
    assert verdicts[Verdict.FASTER] / runs <= 0.05
    assert verdicts[Verdict.SLOWER] / runs <= 0.05
    assert statistics.median(widths) < 0.1


def test_only_rounds_that_both_arms_have_are_compared() -> None:
    trials = [trial(0, 0, [100.0] * 8), trial(1, 0, [150.0] * 8), trial(0, 1, [50.0] * 8)]
    found = compare(trials, 1, 0, rng=Random(1))
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(1.5, rel=1e-5)


def test_the_ratio_is_paired_by_prompt() -> None:
    slow, fast = [10.0, 50.0, 200.0, 90.0], [15.0, 75.0, 300.0, 135.0]
    found = compare([trial(0, 0, slow), trial(1, 0, fast)], 1, 0, rng=Random(1))
    assert found.ratio is not None
    ends = (found.ratio.low, found.ratio.value, found.ratio.high)
    assert ends == pytest.approx((1.5,) * 3, rel=1e-5)
    assert found.verdict is Verdict.FASTER
    assert found.noise_floor is None


def test_prompts_that_only_one_arm_answered_are_left_out_and_counted() -> None:
    found = compare([trial(0, 0, [10, 10, 10, 10]), trial(1, 0, [20, 20, 20])], 1, 0, rng=Random(1))
    assert (found.prompts, found.unpaired) == (3, 1)


def test_drift_between_repeats_keeps_a_difference_from_being_shown() -> None:
    trials = [
        trial(0, 0, [100.0] * 9),
        trial(1, 0, [110.0] * 9),
        trial(1, 1, [125.0] * 9),
        trial(0, 1, [115.0] * 9),
    ]
    found = findings_of(trials, (False, False), draws=500)
    assert found.arms[0].drift == pytest.approx(0.15, rel=1e-5)
    comparison = found.comparisons[0]
    assert comparison.verdict is Verdict.NO_DIFFERENCE
    assert comparison.noise_floor == pytest.approx(0.0945, rel=0.02)


def test_overhead_is_the_accept_length_that_breaks_even() -> None:
    # The founding story: 54.8 against 90.0 tok/s at an accept length of 1.05 needs 1.72.
    trials = [trial(0, 0, [90.0] * 8), trial(1, 0, [54.8] * 8, accepted=5)]
    found = findings_of(trials, (False, True), draws=300)
    assert found.arms[1].accept_length == pytest.approx(1.05)
    assert found.comparisons[0].overhead == pytest.approx(1.05 * 90.0 / 54.8)
    assert found.comparisons[0].verdict is Verdict.SLOWER
    assert found.arms[1].accept is not None


def test_the_first_measured_arm_is_the_reference_when_the_first_failed() -> None:
    trials = [trial(1, 0, [50.0] * 8), trial(2, 0, [50.0] * 8)]
    found = findings_of(trials, (False, True, True), draws=100)
    assert found.references == (1,)
    assert [one.verdict for one in found.comparisons] == [
        Verdict.NOT_MEASURED,
        Verdict.NO_DIFFERENCE,
    ]


def test_nothing_measured_gives_figures_without_numbers() -> None:
    figures = arm_figures(0, [], rng=Random(1))
    assert figures.decode_tok_s is None
    assert findings_of([], (True, True)).references == ()


def test_sentences() -> None:
    ratio = Interval(value=1.5, low=1.4, high=1.6)
    faster = Comparison(arm=1, reference=0, verdict=Verdict.FASTER, ratio=ratio, prompts=16)
    assert (
        sentence(faster, ("base", "right"))
        == "right is faster than base: 1.50 x (95 % interval 1.40 to 1.60) over 16 prompts"
    )
    same = Comparison(
        arm=1,
        reference=0,
        verdict=Verdict.NO_DIFFERENCE,
        ratio=Interval(value=1.0, low=0.95, high=1.05),
        prompts=16,
        smallest_effect=0.07,
    )
    assert "a difference of 7 % would have been seen" in sentence(same, ("base", "right"))
    assert math.isclose(ratio.half_width, 0.1)
