"""Settings of a draft that may be otherwise than its files say: norms, RoPE, how d2t is read.

A setting is a flag with its sign: ``+fc_norm``, ``-norm_before_residual``, ``+target_rope``.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from eaglemon.core.draft_views import TARGET_ROPE, Hypothesis
from eaglemon.draft.layout import DraftSettings
from eaglemon.draft.model import DraftModel
from eaglemon.draft.torch_lib import torch

_NORMS = ("norm_before_residual", "fc_norm", "norm_before_fc")
_LATER_NORM = "norm_output"
"""Changes nothing in the first step."""


def toggles_of(model: DraftModel) -> tuple[str, ...]:
    """Return the settings that the weights would allow to be otherwise, for the first step."""
    usable = {
        "norm_before_residual": True,
        "fc_norm": "fc_norm.0.weight" in model.weights,
        "norm_before_fc": "input_norm.weight" in model.weights,
    }
    norms = tuple(_toggle(model, name) for name in _NORMS if usable[name])
    return norms if model.target_rope is None else (*norms, TARGET_ROPE)


def later_toggle(model: DraftModel) -> str:
    """Return the setting that shows in later steps alone."""
    return _toggle(model, _LATER_NORM)


def toggled(item: Hypothesis, toggle: str) -> Hypothesis:
    """Return the hypothesis with one setting the other way."""
    return replace(item, flags=tuple(sorted(set(item.flags) ^ {toggle})))


def with_flags(model: DraftModel, flags: Sequence[str]) -> DraftModel:
    """Return the model with these settings in place of its own."""
    if not flags:
        return model
    changes: dict[str, Any] = {flag[1:]: flag[0] == "+" for flag in flags if flag != TARGET_ROPE}
    if TARGET_ROPE in flags and model.target_rope is not None:
        changes["rope"] = model.target_rope
    settings: DraftSettings = replace(model.settings, **changes)
    return replace(model, settings=settings)


def adjusted(model: DraftModel, hypothesis: Hypothesis) -> DraftModel:
    """Return the model with the settings and the vocabulary reading of a hypothesis."""
    changed = with_flags(model, hypothesis.flags)
    if not hypothesis.absolute_ids:
        return changed
    places = torch.arange(model.offsets.numel(), device=model.device)
    return replace(changed, offsets=model.offsets - places)


def _toggle(model: DraftModel, name: str) -> str:
    return f"{'-' if getattr(model.settings, name) else '+'}{name}"
