"""The statistics against known values, and their error rates shown by simulation."""

import math
import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.stats import (
    Interval,
    expected_effect,
    mean_interval,
    pooled_variance,
    ratio_interval,
    restart_half,
    smallest_effect,
    t_cdf,
    t_interval,
    t_quantile,
    widened,
)


@pytest.mark.parametrize(
    ("probability", "df", "value"),
    # Student's table.
    [
        (0.975, 1, 12.706205),
        (0.975, 2, 4.302653),
        (0.975, 3, 3.182446),
        (0.975, 10, 2.228139),
        (0.975, 79, 1.990450),
        (0.95, 5, 2.015048),
        (0.025, 4, -2.776445),
    ],
)
def test_t_quantiles_are_those_of_the_table(probability: float, df: int, value: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(value, rel=1e-6)
    assert t_cdf(value, df) == pytest.approx(probability, rel=1e-6)


def test_there_is_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match="degrees"):
        t_quantile(0.9, 0)


def test_t_interval_of_a_known_sample() -> None:
    found = t_interval([1.0, 2.0, 3.0, 4.0])
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.4457397, 4.5542603))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20), st.integers(0, 99))
def test_an_interval_holds_its_estimate_and_repeats_with_its_seed(
    values: list[float], seed: int
) -> None:
    one = mean_interval(values, rng=Random(seed), draws=200)
    assert one is not None
    slack = 1e-9
    assert one.low - slack <= one.value <= one.high + slack
    assert one == mean_interval(values, rng=Random(seed), draws=200)


def test_too_little_gives_no_interval() -> None:
    assert mean_interval([1.0], rng=Random(1)) is None
    assert ratio_interval([(1.0, 1.0)], rng=Random(1)) is None
    assert ratio_interval([(1.0, 0.0), (2.0, 0.0)], rng=Random(1)) is None
    assert pooled_variance([[1.0], [2.0]]) is None
    assert expected_effect(1) is None


def test_the_bootstrap_covers_what_it_says_even_for_few_prompts() -> None:
    rng, missed, runs = Random(3), 0, 400
    for _ in range(runs):
        found = mean_interval([rng.gauss(0, 0.2) for _ in range(10)], rng=rng, draws=1000)
        assert found is not None
        missed += not found.low <= 0 <= found.high
    assert missed / runs < 0.075


def test_accept_length_is_sum_over_sum_not_a_mean_of_ratios() -> None:
    found = ratio_interval([(30.0, 10.0), (2.0, 2.0)] * 8, rng=Random(1), draws=500)
    assert found is not None
    assert found.value == pytest.approx(32 / 12)
    assert found.low < found.value < found.high


def test_restarts_widen_an_interval_as_squares_add() -> None:
    base = Interval(value=0.0, low=-0.03, high=0.03)
    assert widened(base, 0.04).high == pytest.approx(0.05)
    pooled = pooled_variance([[0.0, 0.02], [0.1, 0.12], [0.5]])
    assert pooled is not None
    variance, df = pooled
    assert df == 2
    assert math.sqrt(variance) == pytest.approx(statistics.stdev([0.0, 0.02]))
    half = restart_half(variance, df, (2, 2), level=0.95)
    assert half == pytest.approx(4.302653 * math.sqrt(variance))


def test_the_smallest_effect_before_and_after() -> None:
    # 2.8 * sd / sqrt(n) for many prompts.
    assert expected_effect(80, sd=0.2) == pytest.approx(2.8 * 0.2 / math.sqrt(80), rel=0.02)
    interval = Interval(value=0.0, low=-0.0196, high=0.0196)
    assert smallest_effect(interval) == pytest.approx(0.028, rel=0.01)
