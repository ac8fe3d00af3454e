"""Rotary position embedding, with the scalings that EAGLE-3 drafts are published with."""

import math
from collections.abc import Mapping
from typing import Any

from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError

SUPPORTED = ("default", "linear", "llama3", "yarn")


def rope_table(
    settings: Mapping[str, Any], head_size: int, positions: int, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines, each [positions, head_size] in float32.

    ``settings`` is what ``layout.rope_of`` returns. The formulas are those of Hugging Face
    transformers (``modeling_rope_utils``). Raises ``ConfigError`` for an unknown scaling.
    """
    kind = str(settings["rope_type"])
    if kind not in SUPPORTED:
        raise ConfigError(
            f"the draft's rope_type {kind!r} is not supported by the offline check",
            hint=f"supported: {', '.join(SUPPORTED)}",
        )
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    theta = float(settings["rope_theta"])
    frequencies = theta**-exponents
    factor = float(settings.get("factor") or 1.0)
    scale = 1.0
    if kind == "linear":
        frequencies = frequencies / factor
    elif kind == "llama3":
        frequencies = _llama3(frequencies, settings, factor)
    elif kind == "yarn":
        frequencies = _yarn(frequencies, settings, factor, theta, head_size)
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
    low, high = float(settings["low_freq_factor"]), float(settings["high_freq_factor"])
    trained = float(settings["original_max_position_embeddings"])
    wavelengths = 2 * math.pi / frequencies
    smooth = ((trained / wavelengths - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * frequencies / factor + smooth * frequencies


def _yarn(
    frequencies: torch.Tensor,
    settings: Mapping[str, Any],
    factor: float,
    theta: float,
    head_size: int,
) -> torch.Tensor:
    trained = float(settings["original_max_position_embeddings"])

    def dimension(rotations: float) -> float:
        return head_size * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(float(settings.get("beta_fast") or 32))), 0)
    high = min(math.ceil(dimension(float(settings.get("beta_slow") or 1))), head_size - 1)
    steps = torch.arange(head_size // 2, dtype=torch.float32)
    ramp = ((steps - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies / factor * ramp + frequencies * (1 - ramp)


def _yarn_scale(settings: Mapping[str, Any], factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    given = settings.get("attention_factor")
    if given is not None:
        return float(given)
    scale, all_dims = settings.get("mscale"), settings.get("mscale_all_dim")
    if scale and all_dims:
        return magnitude(float(scale)) / magnitude(float(all_dims))
    return magnitude(1.0)
