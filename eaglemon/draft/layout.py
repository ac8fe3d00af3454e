"""What an EAGLE-3 draft consists of: the roles of its tensors, their shapes, its settings.

Two layouts are in use and differ in names alone: SpecForge and SGLang write ``midlayer.*``,
speculators ``layers.0.*``. Names here are those without ``model.`` and with ``layer.`` for the
first decoder layer; further ones, which vLLM alone runs, are plain Llama layers ``layers.1.*``.
H: draft hidden size, Ht: target hidden size, A: captured layers, V and Vd: target and draft
vocabulary, nh and nkv: heads, d: head size, I: MLP size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eaglemon.core.wiring import TargetShape
from eaglemon.draft.checkpoint import Checkpoint
from eaglemon.errors import ConfigError

LEGACY_NORMS = {
    "aux_norm_low.weight": "fc_norm.0.weight",
    "aux_norm_mid.weight": "fc_norm.1.weight",
    "aux_norm_high.weight": "fc_norm.2.weight",
}
_LAYER_PREFIXES = ("midlayer.", "layers.0.")
_MLA_PARTS = ("q_a_proj", "kv_a_proj_with_mqa", "kv_b_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSettings:
    """Settings of a draft, from either kind of ``config.json``, defaults filled in."""

    hidden_size: int
    target_hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    mlp_size: int
    vocabulary: int
    draft_vocabulary: int
    max_positions: int
    rms_eps: float
    rope: Mapping[str, Any]
    """``rope_theta`` and, where scaled, ``rope_type`` and its numbers."""
    layers: int = 1
    fc_norm: bool = False
    """One RMSNorm for each captured layer, before they are joined."""
    norm_before_fc: bool = False
    """One RMSNorm over the joined layers."""
    norm_output: bool = False
    """The next step is fed the normed output."""
    norm_before_residual: bool = False
    """The residual starts after ``hidden_norm``."""


def settings_in(checkpoint: Checkpoint) -> DraftSettings:
    """Read a draft's settings; raises ``ConfigError`` naming the file and the key."""
    try:
        return settings_of(checkpoint.config)
    except ConfigError as error:
        raise ConfigError(f"{checkpoint.folder}/{error.message}", hint=error.hint) from error


def settings_of(config: Mapping[str, Any]) -> DraftSettings:
    """Read a draft's settings; raises ``ConfigError`` naming the key that is missing or wrong."""
    inner = config.get("transformer_layer_config")
    body = inner if isinstance(inner, dict) else config
    eagle = config.get("eagle_config")
    flags = {**(eagle if isinstance(eagle, dict) else {}), **config}
    hidden = _count(body, "hidden_size")
    heads = _count(body, "num_attention_heads")
    vocabulary = _count(body, "vocab_size")
    return DraftSettings(
        hidden_size=hidden,
        target_hidden_size=_count(config, "target_hidden_size", hidden),
        heads=heads,
        kv_heads=_count(body, "num_key_value_heads", heads),
        head_size=_count(body, "head_dim", hidden // heads),
        mlp_size=_count(body, "intermediate_size"),
        vocabulary=vocabulary,
        draft_vocabulary=_count(config, "draft_vocab_size", vocabulary),
        max_positions=_count(body, "max_position_embeddings", 2048),
        rms_eps=_real(body, "rms_norm_eps", 1e-6),
        rope=rope_of(body),
        layers=_count(body, "num_hidden_layers", 1),
        fc_norm=bool(flags.get("fc_norm") or flags.get("use_aux_norm")),
        norm_before_fc=bool(flags.get("norm_before_fc")),
        norm_output=bool(flags.get("norm_output")),
        norm_before_residual=bool(flags.get("norm_before_residual")),
    )


def rope_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RoPE settings of a model configuration in one form (old and new keys)."""
    merged: dict[str, Any] = {"rope_theta": _real(body, "rope_theta", 10000.0)}
    for key in ("rope_scaling", "rope_parameters"):
        value = body.get(key)
        if isinstance(value, dict):
            merged |= value
    kind = merged.pop("type", None)
    merged.setdefault("rope_type", kind or "default")
    return merged


def roles_of(names: Iterable[str]) -> dict[str, str]:
    """Return ``role -> name in the file`` for all tensors, known or not."""
    roles: dict[str, str] = {}
    for name in names:
        role = name.removeprefix("model.")
        for prefix in _LAYER_PREFIXES:
            if role.startswith(prefix):
                role = f"layer.{role.removeprefix(prefix)}"
        roles[LEGACY_NORMS.get(role, role)] = name
    return roles


def uses_mla(names: Iterable[str]) -> bool:
    """Tell whether the draft has multi-head latent attention (DeepSeek and Kimi families)."""
    return any(part in name for name in names for part in _MLA_PARTS)


def shapes_of(settings: DraftSettings, captured: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that a draft of these settings needs; ``captured`` is A."""
    h, ht, i = settings.hidden_size, settings.target_hidden_size, settings.mlp_size
    q, kv = settings.heads * settings.head_size, settings.kv_heads * settings.head_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (h, captured * ht),
        "layer.input_layernorm.weight": (h,),
        "layer.hidden_norm.weight": (h,),
        "layer.self_attn.q_proj.weight": (q, 2 * h),
        "layer.self_attn.k_proj.weight": (kv, 2 * h),
        "layer.self_attn.v_proj.weight": (kv, 2 * h),
        "layer.self_attn.o_proj.weight": (h, q),
        "layer.post_attention_layernorm.weight": (h,),
        "layer.mlp.gate_proj.weight": (i, h),
        "layer.mlp.up_proj.weight": (i, h),
        "layer.mlp.down_proj.weight": (h, i),
        "norm.weight": (h,),
        "lm_head.weight": (settings.draft_vocabulary, h),
    }
    for number in range(1, settings.layers):
        for role in list(shapes):
            part = role.removeprefix("layer.")
            if part not in {role, "hidden_norm.weight"}:
                first = shapes[role]
                wide = part.startswith("self_attn.") and first[-1] == 2 * h
                shapes[f"layers.{number}.{part}"] = (first[0], h) if wide else first
    if settings.draft_vocabulary != settings.vocabulary:
        shapes["d2t"] = (settings.draft_vocabulary,)
    if settings.fc_norm:
        shapes |= {f"fc_norm.{slot}.weight": (ht,) for slot in range(captured)}
    if settings.norm_before_fc:
        shapes["input_norm.weight"] = (captured * ht,)
    return shapes


def optional_shapes(settings: DraftSettings, captured: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that such a draft may have besides."""
    h, ht, v = settings.hidden_size, settings.target_hidden_size, settings.vocabulary
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (v, h),
        "fc.bias": (h,),
        "t2d": (v,),
        "d2t": (settings.draft_vocabulary,),
        "input_norm.weight": (captured * ht,),
    }
    shapes |= {f"layers.{n}.hidden_norm.weight": (h,) for n in range(1, settings.layers)}
    return shapes | {f"fc_norm.{slot}.weight": (ht,) for slot in range(captured)}


def captured_layers(checkpoint: Checkpoint, settings: DraftSettings) -> int:
    """Return A, the number of target layers that ``fc`` joins; raises ``ConfigError``."""
    name = roles_of(checkpoint.tensors).get("fc.weight")
    if name is None:
        raise ConfigError(
            f"{checkpoint.folder}: no fc.weight",
            hint="this is no EAGLE-3 draft, or an unfinished one",
        )
    shape = checkpoint.tensors[name].shape
    width = settings.target_hidden_size
    if len(shape) != 2 or shape[1] % width:
        raise ConfigError(
            f"{checkpoint.folder}: fc.weight is {list(shape)}, which no number of layers of "
            f"hidden size {width} gives",
            hint="set target_hidden_size to the hidden size of the target",
        )
    return shape[1] // width


def target_body(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's part of a target's ``config.json``."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def target_shape(body: Mapping[str, Any]) -> TargetShape | None:
    """Return what wiring rules need of a target; ``None`` where its depth is not told."""
    layers = body.get("num_hidden_layers")
    if not isinstance(layers, int):
        return None
    return TargetShape(layers=layers, model_type=str(body.get("model_type", "")))


def _real(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(f"config.json: {key} is {value!r}, expected a number above 0")
    return float(value)


def _count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        if default is None:
            raise ConfigError(f"config.json: no {key}", hint="this is no complete draft")
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"config.json: {key} is {value!r}, expected a number of at least 1")
    return value
