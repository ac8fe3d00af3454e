"""Goes through an offline run as a server does, round after round.

At temperature 0 a round accepts what ``accepted`` says of the position it begins at, adds the bonus
token, and the next one begins behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eaglemon.core.draft_views import RoundFigures
from eaglemon.draft.blocks import ratio_error
from eaglemon.draft.torch_lib import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Of one passage: sums over its rounds in each block of positions, [blocks]."""

    rounds: torch.Tensor
    tokens: torch.Tensor
    survived: torch.Tensor
    """[steps, blocks], rounds in which the first i+1 drafts were accepted."""


def rounds_of(accepted: torch.Tensor, whole: torch.Tensor, steps: int, size: int | None) -> Rounds:
    """Go through a passage; both are [T]: accepted drafts, and where all steps were drafted."""
    length = accepted.numel()
    wide = size or length
    blocks = -(-length // wide)
    rounds, tokens = torch.zeros(blocks).double(), torch.zeros(blocks).double()
    survived = torch.zeros(steps, blocks).double()
    places, counts = whole.tolist(), accepted.tolist()
    place = places.index(True) if True in places else length
    while place < length:
        if not places[place]:
            place += 1  # A stretch that does not count, such as the next question of a chat.
            continue
        right, block = counts[place], place // wide
        rounds[block] += 1
        tokens[block] += right + 1
        survived[:right, block] += 1
        place += right + 1
    return Rounds(rounds=rounds, tokens=tokens, survived=survived)


def round_figures(passages: Sequence[Rounds]) -> RoundFigures | None:
    """Return the figures over all passages; ``None`` without a round."""
    rounds = torch.cat([passage.rounds for passage in passages])
    count = int(rounds.sum())
    if not count:
        return None
    tokens = torch.cat([passage.tokens for passage in passages])
    survived = torch.cat([passage.survived for passage in passages], dim=1)
    return RoundFigures(
        rounds=count,
        accept_length=float(tokens.sum()) / count,
        accept_length_se=ratio_error(tokens, rounds),
        survival=tuple(float(step.sum()) / count for step in survived),
        survival_se=tuple(ratio_error(step, rounds) for step in survived),
    )
