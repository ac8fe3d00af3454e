"""Acceptance: sums over sums, positions, histograms, and what is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.speculation import AcceptCounts, add_counts, counts_from_histogram

HISTOGRAMS = st.lists(st.integers(0, 500), min_size=2, max_size=8)


def test_a_real_histogram() -> None:
    # One request of the SGLang 0.5.16 capture: 78 steps, 179 accepted of 390 proposed.
    counts = counts_from_histogram([22, 16, 9, 3, 4, 24])

    assert (counts.steps, counts.accepted, counts.proposed) == (78, 179, 390)
    assert counts.accept_length == pytest.approx(1 + 179 / 78)
    assert counts.accept_rate == pytest.approx(0.45897, abs=1e-5)
    assert counts.per_position == (56, 40, 31, 28, 24)


@given(HISTOGRAMS)
def test_accept_length_is_one_plus_the_sum_of_the_survivals(histogram: list[int]) -> None:
    counts = counts_from_histogram(histogram)

    if counts.steps == 0:
        assert counts.accept_length is None
        assert counts.survival == ()
    else:
        assert counts.accept_length == pytest.approx(1 + sum(counts.survival))
        assert list(counts.survival) == sorted(counts.survival, reverse=True)


@given(HISTOGRAMS, HISTOGRAMS)
def test_sums_differ_by_what_was_added(first: list[int], second: list[int]) -> None:
    earlier = counts_from_histogram(first)
    added = counts_from_histogram(second)
    since = (earlier + added).since(earlier)

    assert since is not None
    assert (since.steps, since.accepted) == (added.steps, added.accepted)


def test_reset_counters_give_no_difference() -> None:
    assert AcceptCounts(steps=3, accepted=1).since(AcceptCounts(steps=9, accepted=4)) is None


def test_nothing_is_none_not_zero() -> None:
    empty = AcceptCounts(steps=0, accepted=0)

    assert empty.accept_length is None
    assert empty.accept_rate is None
    assert add_counts([]) is None


def test_conditional_after_a_zero_is_unknown() -> None:
    counts = AcceptCounts(steps=10, accepted=5, per_position=(5, 0, 0))

    assert counts.conditional == (0.5, 0.0, None)


def test_positions_are_lost_when_one_side_does_not_tell_them() -> None:
    total = AcceptCounts(steps=10, accepted=5, per_position=(5,)) + AcceptCounts(
        steps=10, accepted=5
    )

    assert total.per_position == ()
    assert total.accepted == 10
