"""The wiring search: which features, in which order, was this draft trained on?

``fc`` is linear, so each (slot, feature) pair is projected once and a wiring is a sum of
projections; trying one costs one decoder layer. From a few likely starts, one choice is changed at
a time while that brings the expected tokens nearer to the first place: the mean reciprocal rank is
smoother than accuracy, and unlike likelihood the same for every scale of the logits, which wrong
norms change. The nearest are then compared over more text and several draft steps: a wrong norm
shows in what the draft feeds itself more than in its first step. Between wirings of the same
settings the scale is the same, so their distance is measured in log likelihood, which tells more
from as many tokens. All differences are paired by position.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from eaglemon.core.draft_views import Hypothesis, Scored, SearchView
from eaglemon.draft.blocks import block_length, block_sums, paired_distance
from eaglemon.draft.check import ahead, target_ids
from eaglemon.draft.model import Chain, DraftModel, decode, logits, recur, rms_norm
from eaglemon.draft.passages import Material, Passage
from eaglemon.draft.torch_lib import torch
from eaglemon.draft.variants import later_toggle, toggled, toggles_of, with_flags
from eaglemon.errors import ConfigError

FIRST_TOKENS = 1024
"""Tokens that hypotheses are tried on."""
FINAL_TOKENS = 4096
"""Tokens that the nearest are compared on."""
FINAL_STEPS = 3
"""Draft steps that the nearest are compared over."""
_WORTH_SE = 2.0
"""A setting that gains less does not stand against the draft's own files."""
_FLOOR = -12.0
_FINALISTS = 12
_MAX_ROUNDS = 12
_SHIFTS = (-1, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """In blocks of positions: [blocks] each."""

    rank: torch.Tensor
    """Sums of reciprocal ranks over positions and steps."""
    likelihood: torch.Tensor
    """Sums of log probabilities in the first step, cut at ``_FLOOR``."""
    right: torch.Tensor
    """Positions whose first step is right."""
    size: torch.Tensor
    """Positions in each block."""
    steps: int

    @property
    def mean(self) -> float:
        return float(self.rank.sum() / (self.size.sum() * self.steps))

    @property
    def accuracy(self) -> float:
        return float(self.right.sum() / self.size.sum())


def search(
    model: DraftModel, material: Material, *, starts: Sequence[Sequence[str]] = ()
) -> SearchView:
    """Find the hypothesis that puts the expected tokens foremost in the first draft step.

    ``starts`` are wirings to begin with besides the usual ones, such as the configured ones.
    Raises ``ConfigError`` where there is nothing to choose from.
    """
    if not any(name.startswith("hs[") for name in material.names) and len(material.names) < 2:
        raise ConfigError("the hidden states have a single layer: nothing to search")
    began = time.perf_counter()
    with torch.inference_mode():
        few = _Trial(model, _up_to(material, FIRST_TOKENS))
        ends = [_climb(few, start) for start in _starts(model, material, starts, few)]
        best = max(ends, key=lambda end: few.outcome(end).mean)
        for neighbour in (*_neighbours(few, best), *_orders(best)):
            few.outcome(neighbour)
        ranked = sorted(few.seen, key=lambda item: few.seen[item].mean, reverse=True)
        finalists = [*ranked[:_FINALISTS], toggled(best, few.later_toggle)]
        final = _Trial(
            model, _up_to(material, FINAL_TOKENS), only=finalists, steps=_steps_for(material)
        )
        finalists.sort(key=lambda item: final.outcome(item).mean, reverse=True)
        best = _simplest(final, finalists[0])
        rest = [item for item in finalists if item != best]
        scored = [_scored(final, item, best) for item in (best, *rest)]
    return SearchView(
        best=scored[0],
        others=tuple(scored[1:]),
        margin_se=_margin(
            other for other in scored if replace(other.hypothesis, wiring=best.wiring) == best
        ),
        settings_margin_se=_margin(
            other for other in scored if replace(other.hypothesis, wiring=best.wiring) != best
        ),
        slots=_slots(best.wiring),
        tried=len(few.seen),
        positions=int(final.outcome(best).size.sum()),
        steps=final.steps,
        seconds=time.perf_counter() - began,
    )


class _Trial:
    """Tries hypotheses on some passages, each once."""

    def __init__(
        self,
        model: DraftModel,
        material: Material,
        *,
        only: Sequence[Hypothesis] = (),
        steps: int = 1,
    ) -> None:
        self.model = model
        self.material = material
        self.steps = steps
        self.seen: dict[Hypothesis, _Outcome] = {}
        used = {name for item in only for name in item.wiring} or set(material.names)
        self.names = [name for name in material.names if name in used]
        self.block = block_length([passage.expected.numel() for passage in material.passages])
        self._projected: dict[tuple[str, ...], list[list[dict[str, torch.Tensor]]]] = {}
        self.toggles = toggles_of(model)
        self.later_toggle = later_toggle(model)

    def outcome(self, hypothesis: Hypothesis) -> _Outcome:
        """Try a hypothesis, or recall it."""
        if hypothesis not in self.seen:
            self.seen[hypothesis] = self._try(hypothesis)
        return self.seen[hypothesis]

    def _try(self, hypothesis: Hypothesis) -> _Outcome:
        model = with_flags(self.model, hypothesis.flags)
        ids = target_ids(model)
        if hypothesis.absolute_ids:
            ids = model.offsets
        ranks: list[torch.Tensor] = []
        likelihoods: list[torch.Tensor] = []
        rights: list[torch.Tensor] = []
        sizes: list[torch.Tensor] = []
        for number, passage in enumerate(self.material.passages):
            hidden = self._joined(number, passage, hypothesis, model)
            hidden = torch.roll(hidden, -hypothesis.hidden_shift, dims=0)[None]
            chain = Chain()
            # The ends are left out: shifted hypotheses have no true neighbours there.
            here = ahead(passage.scored, 1).clone()
            here[:2] = False
            here[-2 - self.steps :] = False
            total = torch.zeros(here.numel(), device=model.device)
            for step in range(self.steps):
                tokens = ahead(passage.embeddings, 1 + step)
                tokens = torch.roll(tokens, -hypothesis.token_shift, dims=0)
                hidden = decode(
                    model, tokens[None], hidden, chain, swapped=hypothesis.halves_swapped
                )
                scores = logits(model, hidden)[0].float()
                rank, likelihood, right = _against(scores, ids, ahead(passage.expected, 1 + step))
                total += rank
                if step == 0:
                    likelihoods.append(block_sums(likelihood * here, self.block))
                    rights.append(block_sums(here & right, self.block))
                hidden = recur(model, hidden)
            ranks.append(block_sums(total * here, self.block))
            sizes.append(block_sums(here, self.block))
        return _Outcome(
            rank=torch.cat(ranks),
            likelihood=torch.cat(likelihoods),
            right=torch.cat(rights),
            size=torch.cat(sizes),
            steps=self.steps,
        )

    def _joined(
        self, number: int, passage: Passage, hypothesis: Hypothesis, model: DraftModel
    ) -> torch.Tensor:
        """Return fc over the wiring, [T, H], as a sum of projections."""
        projected = self._projections(hypothesis.flags, model)[number]
        total = sum(
            (projected[slot][name] for slot, name in enumerate(hypothesis.wiring)),
            start=torch.zeros((), dtype=model.dtype, device=model.device),
        )
        if model.settings.norm_before_fc:
            squares = sum(
                (passage.features[name].float().square().mean(-1) for name in hypothesis.wiring),
                start=torch.zeros((), device=model.device),
            )
            mean = squares / model.captured + model.settings.rms_eps
            total = total * torch.rsqrt(mean)[:, None].to(model.dtype)
        bias = model.weights.get("fc.bias")
        return total if bias is None else total + bias

    def _projections(
        self, flags: tuple[str, ...], model: DraftModel
    ) -> list[list[dict[str, torch.Tensor]]]:
        """Return [passage][slot][feature] -> [T, H]; only the norms before fc matter to them."""
        key = tuple(flag for flag in flags if flag[1:] in {"fc_norm", "norm_before_fc"})
        if key not in self._projected:
            self._projected[key] = [
                [
                    {name: _project(model, slot, passage.features[name]) for name in self.names}
                    for slot in range(model.captured)
                ]
                for passage in self.material.passages
            ]
        return self._projected[key]


def _project(model: DraftModel, slot: int, feature: torch.Tensor) -> torch.Tensor:
    settings, weights = model.settings, model.weights
    if settings.fc_norm:
        feature = rms_norm(feature, weights[f"fc_norm.{slot}.weight"], settings.rms_eps)
    if settings.norm_before_fc:
        feature = feature * torch.split(weights["input_norm.weight"], feature.shape[-1])[slot]
    return feature @ model.slot_weights[slot].T


def _against(
    scores: torch.Tensor, ids: torch.Tensor, expected: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return reciprocal rank and log probability of the expected tokens, and which are first.

    Tokens that the draft does not know have the reciprocal rank 0.
    """
    size = max(int(ids.max()), int(expected.max())) + 1
    places = torch.full((max(size, 1),), -1, dtype=torch.int64, device=ids.device)
    valid = ids >= 0
    places[ids[valid]] = torch.arange(ids.numel(), device=ids.device)[valid]
    place = places[expected]
    own = scores.gather(-1, place.clamp(min=0)[:, None])
    rank = 1.0 / (1 + (scores > own).sum(-1))
    likelihood = (own[:, 0] - scores.logsumexp(-1)).clamp(min=_FLOOR)
    return (
        torch.where(place >= 0, rank, 0.0),
        torch.where(place >= 0, likelihood, _FLOOR),
        scores.argmax(-1) == place,
    )


def _climb(trial: _Trial, start: Hypothesis) -> Hypothesis:
    """Change one choice at a time while that helps."""
    best = start
    for _ in range(_MAX_ROUNDS):
        better = max(_neighbours(trial, best), key=lambda item: trial.outcome(item).mean)
        if trial.outcome(better).mean <= trial.outcome(best).mean:
            break
        best = better
    return best


def _neighbours(trial: _Trial, item: Hypothesis) -> Iterator[Hypothesis]:
    for slot, current in enumerate(item.wiring):
        for name in trial.names:
            if name != current:
                wiring = (*item.wiring[:slot], name, *item.wiring[slot + 1 :])
                yield replace(item, wiring=wiring)
    for shift in _SHIFTS:
        if shift != item.token_shift:
            yield replace(item, token_shift=shift)
        if shift != item.hidden_shift:
            yield replace(item, hidden_shift=shift)
    yield replace(item, halves_swapped=not item.halves_swapped)
    if bool(trial.model.offsets.any()):
        yield replace(item, absolute_ids=not item.absolute_ids)
    for toggle in trial.toggles:
        yield toggled(item, toggle)


def _orders(item: Hypothesis) -> Iterator[Hypothesis]:
    wiring = item.wiring
    orders = permutations(wiring) if len(wiring) <= 4 else iter([wiring[::-1]])
    for order in orders:
        yield replace(item, wiring=tuple(order))


def usual_slots(layers: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the layers that drafts are usually trained on, for a target whose last is named."""
    if not layers:
        return ()
    top = int(layers[-1][3:-1])
    return ((2, top // 2, top - 3), (0, 2, top // 2), (1, top // 2 - 1, top - 4))


def _starts(
    model: DraftModel, material: Material, given: Sequence[Sequence[str]], trial: _Trial
) -> list[Hypothesis]:
    """Return the two most promising of the usual wirings, with d2t read either way."""
    layers = [name for name in material.names if name.startswith("hs[")]
    wirings = [tuple(wiring) for wiring in given]
    count = model.captured
    wirings += [tuple(f"hs[{slot}]" for slot in slots) for slots in usual_slots(layers)]
    wirings.append(tuple(material.names[:count]))
    wirings += [wiring[::-1] for wiring in list(wirings)]
    fitting = dict.fromkeys(
        wiring for wiring in wirings if len(wiring) == count and set(wiring) <= set(trial.names)
    )
    if not fitting:
        fitting = dict.fromkeys(
            [tuple(material.names[i % len(material.names)] for i in range(count))]
        )
    readings = (False, True) if bool(model.offsets.any()) else (False,)
    starts = [
        Hypothesis(wiring=wiring, absolute_ids=absolute)
        for wiring in fitting
        for absolute in readings
    ]
    starts.sort(key=lambda start: trial.outcome(start).mean, reverse=True)
    return starts[:2]


def _steps_for(material: Material) -> int:
    """Return the draft steps that the shortest passage has room for."""
    shortest = min(passage.expected.numel() for passage in material.passages)
    return max(1, min(FINAL_STEPS, shortest - 5))


def _up_to(material: Material, tokens: int) -> Material:
    """Keep whole passages up to about ``tokens`` tokens, at least one, the last one cut."""
    kept: list[Passage] = []
    left = tokens
    for passage in material.passages:
        size = min(left, passage.expected.numel())
        if size < 16 and kept:
            break
        kept.append(
            Passage(
                embeddings=passage.embeddings[:size],
                features={name: value[:size] for name, value in passage.features.items()},
                expected=passage.expected[:size],
                scored=passage.scored[:size],
            )
        )
        left -= size
    return replace(material, passages=tuple(kept))


def _scored(trial: _Trial, item: Hypothesis, best: Hypothesis) -> Scored:
    mine, top = trial.outcome(item), trial.outcome(best)
    same = item == best
    # Likelihoods of models with other norms are of another scale.
    comparable = replace(item, wiring=best.wiring) == best
    difference = top.likelihood - mine.likelihood if comparable else top.rank - mine.rank
    return Scored(
        hypothesis=item,
        accuracy=mine.accuracy,
        reciprocal_rank=mine.mean,
        behind_se=None if same else paired_distance(difference, top.size),
        behind_accuracy_se=None if same else paired_distance(top.right - mine.right, top.size),
    )


def _simplest(final: _Trial, best: Hypothesis) -> Hypothesis:
    """Return the hypothesis without what hardly helps, of settings and of shifts."""
    places = replace(best, token_shift=0, hidden_shift=0)
    for simpler in (places, replace(places, halves_swapped=False)):
        best = _nearly(final, best, simpler)
    for flag in best.flags:
        best = _nearly(final, best, toggled(best, flag))
    return best


def _nearly(final: _Trial, best: Hypothesis, simpler: Hypothesis) -> Hypothesis:
    mine, other = final.outcome(best), final.outcome(simpler)
    gain = paired_distance(mine.rank - other.rank, mine.size)
    return simpler if gain < _WORTH_SE else best


def _margin(others: Iterable[Scored]) -> float | None:
    return min((s.behind_se for s in others if s.behind_se is not None), default=None)


def _slots(wiring: Sequence[str]) -> tuple[int, ...] | None:
    if not all(name.startswith("hs[") for name in wiring):
        return None
    return tuple(int(name[3:-1]) for name in wiring)
