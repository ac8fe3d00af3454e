"""Whether a draft's choices mean other tokens than its files say.

Where ``d2t`` is wrong, or the rows of ``lm_head`` are out of place, no wiring puts the expected
tokens first, and the draft looks untrained. But the row that it chooses still tells which token
comes: the token that mostly follows a row on one half of the text is then right on the other half.
"""

from collections.abc import Sequence

from eaglemon.core.draft_views import Relabelled
from eaglemon.draft.blocks import LONGEST_BLOCK, block_sums, ratio_error
from eaglemon.draft.check import ahead, target_ids
from eaglemon.draft.model import Chain, DraftModel, decode, join, logits
from eaglemon.draft.passages import Material
from eaglemon.draft.torch_lib import torch

_AGREEING = 0.6
"""Share of choices whose rows are off by the same, to call it a shift."""


def relabelled(
    model: DraftModel, material: Material, wirings: Sequence[Sequence[str]]
) -> Relabelled | None:
    """Return how well the rows tell the tokens, with the wiring that shows it best.

    ``None`` where no wiring fits the draft and the hidden states.
    """
    found = [
        _relabelled(model, material, wiring)
        for wiring in dict.fromkeys(tuple(wiring) for wiring in wirings)
        if len(wiring) == model.captured and set(wiring) <= set(material.names)
    ]
    return max(found, key=lambda one: one.relabelled, default=None)


def _relabelled(model: DraftModel, material: Material, wiring: Sequence[str]) -> Relabelled:
    rows, fed, tokens, blocks = _first_steps(model, material, wiring)
    ids = target_ids(model).cpu()
    own = ids[rows] == tokens
    right = _learned(rows, tokens, blocks)
    counts = torch.bincount(blocks, weights=right.double())
    size = max(1, tokens.numel())
    return Relabelled(
        wiring=tuple(wiring),
        accuracy=float(own.sum()) / size,
        relabelled=float(right.sum()) / size,
        relabelled_se=ratio_error(counts, torch.bincount(blocks).double()),
        by_last_token=float(_learned(fed, tokens, blocks).sum()) / size,
        row_shift=_row_shift(rows, tokens, ids),
        id_shift=_most(tokens - ids[rows]),
        positions=tokens.numel(),
    )


def _first_steps(
    model: DraftModel, material: Material, wiring: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return row chosen, token fed, token expected and block of text, where it counts: [N] each."""
    rows, given, tokens, blocks, begun = [], [], [], [], 0
    with torch.inference_mode():
        for passage in material.passages:
            hidden = join(model, [passage.features[name][None] for name in wiring])
            fed = ahead(passage.embeddings, 1)[None]
            scores = logits(model, decode(model, fed, hidden, Chain()))[0]
            here = ahead(passage.scored, 1)
            here[-1:] = False
            places = torch.arange(here.numel(), device=here.device) // LONGEST_BLOCK
            rows.append(scores.argmax(-1)[here].cpu())
            # On the target's own text the token fed is the one expected a place before.
            given.append(passage.expected[here].cpu())
            tokens.append(ahead(passage.expected, 1)[here].cpu())
            blocks.append((begun + places[here]).cpu())
            begun += int(block_sums(here.cpu(), LONGEST_BLOCK).numel())
    return torch.cat(rows), torch.cat(given), torch.cat(tokens), torch.cat(blocks)


def _learned(keys: torch.Tensor, tokens: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Return where the token that mostly comes with a key in the other blocks is right: [N] bool.

    Even blocks are judged by odd ones and the other way round.
    """
    right = torch.zeros(tokens.numel(), dtype=torch.bool)
    count = int(keys.max()) + 1 if keys.numel() else 1
    for half in (0, 1):
        tried = blocks % 2 == half
        names = _names(keys[~tried], tokens[~tried], count)
        right[tried] = names[keys[tried]] == tokens[tried]
    return right


def _names(keys: torch.Tensor, tokens: torch.Tensor, count: int) -> torch.Tensor:
    """Return the token that mostly comes with each key, [count]; -1 for keys never seen."""
    width = int(tokens.max()) + 1 if tokens.numel() else 1
    pairs, often = torch.unique(keys * width + tokens, return_counts=True)
    names = torch.full((count,), -1, dtype=torch.int64)
    for pair in pairs[torch.argsort(often)].tolist():  # The most frequent is written last.
        names[pair // width] = pair % width
    return names


def _row_shift(rows: torch.Tensor, tokens: torch.Tensor, ids: torch.Tensor) -> int | None:
    """Return by how many rows the choices are off, where most are off by the same."""
    places = torch.full((int(max(ids.max(), tokens.max())) + 1,), -1, dtype=torch.int64)
    known = ids >= 0
    places[ids[known]] = torch.arange(ids.numel())[known]
    own = places[tokens]
    return _most((own - rows)[own >= 0])


def _most(values: torch.Tensor) -> int | None:
    if not values.numel():
        return None
    kinds, often = torch.unique(values, return_counts=True)
    best = int(often.argmax())
    return int(kinds[best]) if int(often[best]) >= _AGREEING * values.numel() else None
