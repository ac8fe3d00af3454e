"""Rotary position embedding, with the scalings that EAGLE-3 drafts are published with."""

import math
from collections.abc import Mapping
from typing import Any

from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError

SUPPORTED = ("default", "linear", "llama3", "yarn")
_TRAINED = "original_max_position_embeddings"


def rope_table(
    settings: Mapping[str, Any],
    head_size: int,
    positions: int,
    device: str,
    *,
    max_positions: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines, each [positions, head_size] in float32.

    ``settings`` is what ``layout.rope_of`` returns. The formulas are those of Hugging Face
    transformers (``modeling_rope_utils``): there, too, ``max_positions``, the configuration's
    ``max_position_embeddings``, stands in where yarn has no ``original_max_position_embeddings``.
    Raises ``ConfigError`` for an unknown scaling, or one without its numbers.
    """
    kind = str(settings["rope_type"])
    if kind not in SUPPORTED:
        raise ConfigError(
            f"the draft's rope_type {kind!r} is not supported by the offline check",
            hint=f"supported: {', '.join(SUPPORTED)}",
        )
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    theta = _number(settings, "rope_theta")
    frequencies = theta**-exponents
    factor = _number(settings, "factor", 1.0)
    scale = 1.0
    if kind == "linear":
        frequencies = frequencies / factor
    elif kind == "llama3":
        frequencies = _llama3(frequencies, settings, factor)
    elif kind == "yarn":
        trained = _number(settings, _TRAINED, max_positions)
        frequencies = _yarn(frequencies, settings, factor, head_size, trained)
        scale = _yarn_scale(settings, factor)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    doubled = torch.cat([angles, angles], dim=-1).to(device)
    return doubled.cos() * scale, doubled.sin() * scale


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotate x [B, heads, T, d] by tables [T, d]; halves pair up as in Llama."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (x * cosines + turned * sines).to(x.dtype)


def _llama3(frequencies: torch.Tensor, settings: Mapping[str, Any], factor: float) -> torch.Tensor:
    low, high = _number(settings, "low_freq_factor"), _number(settings, "high_freq_factor")
    trained = _number(settings, _TRAINED)
    wavelengths = 2 * math.pi / frequencies
    smooth = ((trained / wavelengths - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * frequencies / factor + smooth * frequencies


def _yarn(
    frequencies: torch.Tensor,
    settings: Mapping[str, Any],
    factor: float,
    head_size: int,
    trained: float,
) -> torch.Tensor:
    theta = _number(settings, "rope_theta")

    def dimension(rotations: float) -> float:
        return head_size * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(_number(settings, "beta_fast", 32.0))), 0)
    high = min(math.ceil(dimension(_number(settings, "beta_slow", 1.0))), head_size - 1)
    steps = torch.arange(head_size // 2, dtype=torch.float32)
    ramp = ((steps - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies / factor * ramp + frequencies * (1 - ramp)


def _yarn_scale(settings: Mapping[str, Any], factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if settings.get("attention_factor") is not None:
        return _number(settings, "attention_factor")
    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return magnitude(_number(settings, "mscale")) / magnitude(
            _number(settings, "mscale_all_dim")
        )
    return magnitude(1.0)


def _number(settings: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return a positive setting; raises ``ConfigError`` naming the one that lacks or is none."""
    value = settings.get(key)
    if value is None:
        value = default
    kind = settings["rope_type"]
    if value is None:
        raise ConfigError(
            f"config.json: the rope_type {kind!r} has no {key}",
            hint="copy the RoPE settings from what the draft was trained with",
        )
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(f"config.json: {key} of the RoPE is {value!r}, expected a number above 0")
    return float(value)
