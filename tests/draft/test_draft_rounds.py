"""Rounds of a server over an offline run, by hand."""

import pytest

from eaglemon.draft.rounds import round_figures, rounds_of
from eaglemon.draft.torch_lib import torch


def test_a_round_begins_where_the_last_one_ended() -> None:
    # From 0: 2 accepted and the bonus, so on at 3: none, on at 4: 1, on at 6: all 3, past the end.
    accepted = torch.tensor([2, 9, 9, 0, 1, 9, 3, 9])
    rounds = rounds_of(accepted, torch.ones(8, dtype=torch.bool), 3, None)
    figures = round_figures([rounds])
    assert figures is not None
    assert figures.rounds == 4
    assert figures.accept_length == (3 + 1 + 2 + 4) / 4
    assert figures.survival == (3 / 4, 2 / 4, 1 / 4)


def test_positions_that_do_not_count_are_passed_over() -> None:
    whole = torch.tensor([False, False, True, True, False, True])
    rounds = rounds_of(torch.tensor([5, 5, 0, 1, 5, 0]), whole, 2, 2)
    assert rounds.rounds.tolist() == [0.0, 2.0, 1.0]
    assert rounds.tokens.tolist() == [0.0, 3.0, 1.0]
    assert rounds.survived.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    none = rounds_of(torch.zeros(3), torch.zeros(3, dtype=torch.bool), 2, None)
    assert round_figures([none]) is None


def test_easy_stretches_take_few_rounds() -> None:
    """Half of the positions accept 5, half none: the mean is 3.5, a server reaches 1.7."""
    accepted = torch.tensor([5] * 600 + [0] * 600)
    figures = round_figures([rounds_of(accepted, torch.ones(1200, dtype=torch.bool), 5, 64)])
    assert figures is not None
    assert figures.accept_length == pytest.approx(1200 / 700)
