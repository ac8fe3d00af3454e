"""Standard errors over blocks of positions, against values whose spread is known."""

import math

import pytest

from eaglemon.draft.blocks import block_length, block_sums, paired_distance, ratio_error
from eaglemon.draft.torch_lib import torch


def test_blocks_of_equal_positions_count_once() -> None:
    """Each value 50 times over tells no more than the values themselves."""
    generator = torch.Generator().manual_seed(1)
    values = (torch.rand(400, generator=generator) < 0.7).double()
    spread = float(values.std()) / math.sqrt(400)
    ones = torch.ones(400, dtype=torch.float64)
    assert ratio_error(values, ones) == pytest.approx(spread, rel=0.01)
    repeated = values.repeat_interleave(50)
    sums, sizes = block_sums(repeated, 50), block_sums(torch.ones(20000), 50)
    assert ratio_error(sums, sizes) == pytest.approx(spread, rel=0.01)
    # Taken for independent, the same positions would seem 7 times as sure.
    assert ratio_error(repeated, torch.ones(20000, dtype=torch.float64)) < spread / 6.9


def test_blocks_are_of_different_sizes_and_may_be_empty() -> None:
    counts, sizes = torch.tensor([1.0, 30.0, 0.0]), torch.tensor([2.0, 60.0, 0.0])
    assert ratio_error(counts, sizes) == 0.0
    assert math.isinf(ratio_error(counts[:1], sizes[:1]))
    assert paired_distance(counts[:1], sizes[:1]) == 0.0


def test_a_sequence_is_one_observation_where_there_are_many() -> None:
    assert block_length([216] * 16) is None
    assert block_length([216] * 4) == 64
    assert block_length([4000]) == 64
    # Of little text, smaller blocks, but never single positions.
    assert block_length([100]) == 8
    assert block_sums(torch.arange(5), 2).tolist() == [1.0, 5.0, 4.0]
    assert block_sums(torch.arange(5), None).tolist() == [10.0]
