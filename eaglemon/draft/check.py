"""The offline check: the draft unrolled over the target's hidden states, as in its training.

Position t of step k (from 0) is fed the token at t + 1 + k and stands for the token expected after
it. Tokens are the text's own (teacher forcing), hidden states the draft's own from step 1 on.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from eaglemon.core.draft_views import CheckView, StepFigures
from eaglemon.draft.model import Chain, DraftModel, decode, join, logits, recur
from eaglemon.draft.passages import Material, Passage
from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError


@dataclass(slots=True)
class _Counts:
    positions: int = 0
    right: int = 0
    survived: int = 0
    reached: int = 0
    """Positions whose earlier steps were all right."""


def check(
    model: DraftModel, material: Material, wiring: Sequence[str], *, steps: int = 5
) -> CheckView:
    """Run ``steps`` draft steps with these features in the slots of ``fc``.

    Raises ``ConfigError`` where the slots do not match the draft, or the text is too short.
    """
    missing = [name for name in wiring if name not in material.names]
    if missing:
        raise ConfigError(
            f"{missing[0]} is not in the hidden states",
            hint=f"there are {', '.join(material.names)}",
        )
    if len(wiring) != model.captured:
        raise ConfigError(f"the draft joins {model.captured} layers, {len(wiring)} were given")
    started = time.perf_counter()
    counts = [_Counts() for _ in range(steps)]
    lengths: list[int] = []
    known = known_tokens(model)
    covered = scored = 0
    with torch.inference_mode():
        for passage in material.passages:
            expected = passage.expected[passage.scored]
            covered += int(known[expected].sum())
            scored += expected.numel()
            lengths += _unroll(model, passage, wiring, counts)
    if any(count.positions == 0 for count in counts):
        raise ConfigError(
            f"the text is too short for {steps} steps", hint="capture longer answers, or --steps"
        )
    figures = _figures(counts)
    return CheckView(
        wiring=tuple(wiring),
        expected=material.expected,
        steps=figures,
        coverage=covered / scored if scored else None,
        accept_length=1.0 + sum(step.survival for step in figures),
        accept_length_se=_mean_se(lengths),
        sequences=len(material.passages),
        tokens=material.tokens,
        dtype=str(model.dtype).removeprefix("torch."),
        device=model.device,
        seconds=time.perf_counter() - started,
        feature_bytes=material.feature_bytes,
        notes=material.notes,
    )


def known_tokens(model: DraftModel) -> torch.Tensor:
    """Return [V] bool: the target ids that the draft can propose."""
    known = torch.zeros(model.settings.vocabulary, dtype=torch.bool, device=model.device)
    ids = target_ids(model)
    known[ids[(ids >= 0) & (ids < known.numel())]] = True
    return known


def target_ids(model: DraftModel) -> torch.Tensor:
    """Return [Vd] int64: the target id of each draft id."""
    return model.offsets + torch.arange(model.offsets.numel(), device=model.device)


def _unroll(
    model: DraftModel, passage: Passage, wiring: Sequence[str], counts: list[_Counts]
) -> list[int]:
    """Draft from each position of one passage; returns the accepted drafts of each."""
    length = passage.expected.numel()
    hidden = join(model, [passage.features[name][None] for name in wiring])
    chain = Chain(keys=[], values=[])
    ids = target_ids(model)
    alive = torch.ones(length, dtype=torch.bool, device=model.device)
    accepted = torch.zeros(length, dtype=torch.int64, device=model.device)
    for step, count in enumerate(counts):
        shift = 1 + step
        hidden = decode(model, ahead(passage.embeddings, shift)[None], hidden, chain)
        chosen = ids[logits(model, hidden)[0].argmax(-1)]
        right = chosen == ahead(passage.expected, shift)
        here = ahead(passage.scored, shift)
        here[max(0, length - shift) :] = False
        count.positions += int(here.sum())
        count.reached += int((here & alive).sum())
        count.right += int((here & right).sum())
        alive = alive & right
        count.survived += int((here & alive).sum())
        accepted += alive & here
        hidden = recur(model, hidden)
    whole = ahead(passage.scored, 1)
    whole[max(0, length - len(counts)) :] = False
    return [int(value) for value in accepted[whole].tolist()]


def ahead(values: torch.Tensor, by: int) -> torch.Tensor:
    """Return a copy of ``values`` [T, ...] moved ``by`` places forward, its end repeated."""
    if by >= values.shape[0]:
        return values[-1:].expand_as(values).clone()
    return torch.cat([values[by:], values[-1:].expand(by, *values.shape[1:])])


def _figures(counts: Sequence[_Counts]) -> tuple[StepFigures, ...]:
    figures = []
    for number, count in enumerate(counts, start=1):
        accuracy = count.right / count.positions
        survival = count.survived / count.positions
        conditional = count.survived / count.reached if count.reached else None
        figures.append(
            StepFigures(
                step=number,
                positions=count.positions,
                accuracy=accuracy,
                accuracy_se=_share_se(accuracy, count.positions),
                survival=survival,
                survival_se=_share_se(survival, count.positions),
                conditional=conditional,
                conditional_se=(
                    None if conditional is None else _share_se(conditional, count.reached)
                ),
            )
        )
    return tuple(figures)


def _share_se(share: float, count: int) -> float:
    return math.sqrt(share * (1.0 - share) / count)


def _mean_se(values: Sequence[int]) -> float:
    if len(values) < 2:
        return math.inf
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))
