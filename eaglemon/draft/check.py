"""The offline check: the draft unrolled over the target's hidden states, as in its training.

Position t of step k (from 0) is fed the token at t + 1 + k and stands for the token expected after
it. Tokens are the text's own (teacher forcing), hidden states the draft's own from step 1 on.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from eaglemon.core.draft_views import CheckView, StepFigures
from eaglemon.draft.blocks import block_length, block_sums, ratio_error
from eaglemon.draft.model import Chain, DraftModel, decode, join, logits, recur
from eaglemon.draft.passages import Material, Passage
from eaglemon.draft.rounds import Rounds, round_figures, rounds_of
from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError


@dataclass(slots=True, kw_only=True)
class _Counts:
    """Of one passage: [blocks] each, sums over the positions that count."""

    positions: torch.Tensor
    right: torch.Tensor
    survived: torch.Tensor
    reached: torch.Tensor
    """Positions whose earlier steps were all right."""


@dataclass(slots=True, kw_only=True)
class _Unrolled:
    """One passage."""

    steps: list[_Counts]
    accepted: torch.Tensor
    """[blocks], accepted drafts of the positions that all steps were drafted from."""
    whole: torch.Tensor
    """[blocks], how many these are."""
    rounds: Rounds


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
            hint=f"there are {', '.join(material.names)}; hs[0] is the embedding",
        )
    if len(wiring) != model.captured:
        raise ConfigError(f"the draft joins {model.captured} layers, {len(wiring)} were given")
    started = time.perf_counter()
    known = known_tokens(model)
    covered = scored = 0
    size = block_length([passage.expected.numel() for passage in material.passages])
    passages: list[_Unrolled] = []
    with torch.inference_mode():
        for passage in material.passages:
            expected = passage.expected[passage.scored]
            covered += int(known[expected].sum())
            scored += expected.numel()
            passages.append(_unroll(model, passage, wiring, steps, size))
    figures = tuple(_figures(passages, step) for step in range(steps))
    whole = torch.cat([passage.whole for passage in passages])
    accepted = torch.cat([passage.accepted for passage in passages])
    return CheckView(
        wiring=tuple(wiring),
        expected=material.expected,
        steps=figures,
        coverage=covered / scored if scored else None,
        accept_length=1.0 + sum(step.survival for step in figures),
        accept_length_se=ratio_error(accepted, whole),
        served=round_figures([passage.rounds for passage in passages]),
        sequences=len(material.passages),
        observations=int((whole > 0).sum()),
        tokens=material.tokens,
        dtype=str(model.dtype).removeprefix("torch."),
        device=model.device,
        seconds=time.perf_counter() - started,
        feature_bytes=material.feature_bytes,
        notes=(*material.notes, *_outside(model)),
    )


def known_tokens(model: DraftModel) -> torch.Tensor:
    """Return [V] bool: the target ids that the draft can propose."""
    known = torch.zeros(model.settings.vocabulary, dtype=torch.bool, device=model.device)
    ids = target_ids(model)
    known[ids[(ids >= 0) & (ids < known.numel())]] = True
    return known


def _outside(model: DraftModel) -> tuple[str, ...]:
    ids, size = target_ids(model), model.settings.vocabulary
    outside = int(((ids < 0) | (ids >= size)).sum())
    if not outside:
        return ()
    return (f"d2t maps {outside} of {ids.numel()} draft ids outside of the target's {size}",)


def target_ids(model: DraftModel) -> torch.Tensor:
    """Return [Vd] int64: the target id of each draft id."""
    return model.offsets + torch.arange(model.offsets.numel(), device=model.device)


def _unroll(
    model: DraftModel, passage: Passage, wiring: Sequence[str], steps: int, size: int | None
) -> _Unrolled:
    """Draft from each position of one passage."""
    length = passage.expected.numel()
    hidden = join(model, [passage.features[name][None] for name in wiring])
    chain = Chain()
    ids = target_ids(model)
    alive = torch.ones(length, dtype=torch.bool, device=model.device)
    accepted = torch.zeros(length, dtype=torch.int64, device=model.device)
    counts = []
    for step in range(steps):
        shift = 1 + step
        hidden = decode(model, ahead(passage.embeddings, shift)[None], hidden, chain)
        chosen = ids[logits(model, hidden)[0].argmax(-1)]
        right = chosen == ahead(passage.expected, shift)
        here = ahead(passage.scored, shift)
        here[max(0, length - shift) :] = False
        reached = here & alive
        alive = alive & right
        counts.append(
            _Counts(
                positions=block_sums(here, size),
                right=block_sums(here & right, size),
                survived=block_sums(here & alive, size),
                reached=block_sums(reached, size),
            )
        )
        accepted += alive & here
        hidden = recur(model, hidden)
    whole = ahead(passage.scored, 1)
    whole[max(0, length - steps) :] = False
    return _Unrolled(
        steps=counts,
        accepted=block_sums(accepted * whole, size),
        whole=block_sums(whole, size),
        rounds=rounds_of(accepted, whole, steps, size),
    )


def ahead(values: torch.Tensor, by: int) -> torch.Tensor:
    """Return a copy of ``values`` [T, ...] moved ``by`` places forward, its end repeated."""
    if by >= values.shape[0]:
        return values[-1:].expand_as(values).clone()
    return torch.cat([values[by:], values[-1:].expand(by, *values.shape[1:])])


def _figures(passages: Sequence[_Unrolled], step: int) -> StepFigures:
    def all_of(name: str) -> torch.Tensor:
        return torch.cat([getattr(passage.steps[step], name) for passage in passages])

    positions, reached, survived = all_of("positions"), all_of("reached"), all_of("survived")
    count, right = float(positions.sum()), all_of("right")
    if not count:
        raise ConfigError(
            f"the text is too short for draft step {step + 1}",
            hint="capture longer answers, or give fewer --steps",
        )
    met = float(reached.sum())
    return StepFigures(
        step=step + 1,
        positions=int(count),
        accuracy=float(right.sum()) / count,
        accuracy_se=ratio_error(right, positions),
        survival=float(survived.sum()) / count,
        survival_se=ratio_error(survived, positions),
        conditional=float(survived.sum()) / met if met else None,
        conditional_se=ratio_error(survived, reached) if met else None,
    )
