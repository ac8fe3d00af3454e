"""The EAGLE-3 draft in plain PyTorch: a decoder layer over joined target layers.

It follows what the engines compute (``llama_eagle3.py`` of SGLang 0.5.16; of vLLM 0.32 for
drafts of several layers, whose later ones are plain Llama layers): the embedding
of the next token and the hidden state go through their own norms and are joined, embedding first;
the residual is the hidden state before its norm; the next step is fed the output before the final
norm unless ``norm_output``. B: sequences, T: positions, H: hidden size; other letters as in
``layout``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eaglemon.draft.checkpoint import Checkpoint
from eaglemon.draft.layout import (
    DraftSettings,
    captured_layers,
    roles_of,
    rope_of,
    settings_in,
    shapes_of,
    target_body,
    uses_mla,
)
from eaglemon.draft.rope import SUPPORTED, rope_table, rotate
from eaglemon.draft.torch_lib import torch
from eaglemon.draft.weights import read_tensor
from eaglemon.errors import ConfigError

QUERY_CHUNK = 512
"""Queries attended to at a time, so that memory grows with T and not with its square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModel:
    """A draft's weights in memory."""

    settings: DraftSettings
    captured: int
    """A, the number of target layers that ``fc`` joins."""
    weights: dict[str, torch.Tensor]
    """By role, see ``layout``; matrices are [out, in]."""
    offsets: torch.Tensor
    """[Vd] int64: target id = draft id + offset. Zeros where the vocabularies are the same."""
    dtype: torch.dtype
    device: str
    target_rope: Mapping[str, Any] | None = None
    """The target's RoPE, where it is another that can be run; ``None`` else."""

    @property
    def slot_weights(self) -> Sequence[torch.Tensor]:
        """``fc`` cut into its column blocks, one [H, Ht] for each captured layer."""
        return torch.split(self.weights["fc.weight"], self.settings.target_hidden_size, dim=1)


def load_draft(
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    target: Checkpoint | None = None,
) -> DraftModel:
    """Read a draft; ``target`` lends its ``lm_head`` where the draft has none of its own.

    Raises ``ConfigError`` naming the tensor that is missing, or not of the shape that the
    configuration asks for, and for architectures that are not supported.
    """
    settings = settings_in(checkpoint)
    if uses_mla(checkpoint.tensors):
        raise ConfigError(
            f"{checkpoint.folder}: a draft with multi-head latent attention (MLA)",
            hint="the offline check supports Llama-type drafts; 'draft inspect' reads this one",
        )
    captured = captured_layers(checkpoint, settings)
    roles = roles_of(checkpoint.tensors)
    weights: dict[str, torch.Tensor] = {}
    for role, shape in shapes_of(settings, captured).items():
        if role == "d2t":
            continue
        source, name = checkpoint, roles.get(role)
        if name is None and role == "lm_head.weight":
            source, name = _borrowed_head(checkpoint, settings, target)
        if name is None:
            raise ConfigError(f"{checkpoint.folder}: no tensor {role} (needed, {list(shape)})")
        if source.tensors[name].shape != shape:
            raise ConfigError(
                f"{source.folder}: {name} is {list(source.tensors[name].shape)}, "
                f"the configuration asks for {list(shape)}"
            )
        weights[role] = read_tensor(source, name, dtype=dtype, device=device)
    if "fc.bias" in roles:
        weights["fc.bias"] = read_tensor(checkpoint, roles["fc.bias"], dtype=dtype, device=device)
    return DraftModel(
        settings=settings,
        captured=captured,
        weights=weights,
        offsets=_offsets(checkpoint, roles, settings).to(device),
        dtype=dtype,
        device=device,
        target_rope=_other_rope(settings, target),
    )


def _other_rope(settings: DraftSettings, target: Checkpoint | None) -> Mapping[str, Any] | None:
    if target is None:
        return None
    body = target_body(target.config)
    rope = rope_of(body)
    # A draft of other heads turns other frequencies, and some targets turn layers differently.
    alike = body.get("head_dim") in {None, settings.head_size}
    nested = any(isinstance(value, Mapping) for value in rope.values())
    if not alike or nested or "partial_rotary_factor" in rope or rope == dict(settings.rope):
        return None
    if rope["rope_type"] not in SUPPORTED:
        return None
    return rope


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise the last dimension in float32, as the engines do."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return wide.to(x.dtype) * weight


def join(model: DraftModel, features: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return fc over the captured layers: A tensors [B, T, Ht] give [B, T, H]."""
    settings, weights = model.settings, model.weights
    if settings.fc_norm:
        features = [
            rms_norm(feature, weights[f"fc_norm.{slot}.weight"], settings.rms_eps)
            for slot, feature in enumerate(features)
        ]
    joined = torch.cat(list(features), dim=-1)  # [B, T, A * Ht]
    if settings.norm_before_fc:
        joined = rms_norm(joined, weights["input_norm.weight"], settings.rms_eps)
    return torch.nn.functional.linear(joined, weights["fc.weight"], weights.get("fc.bias"))


@dataclass(slots=True, kw_only=True)
class Chain:
    """The keys and values that a chain of draft steps has seen so far."""

    keys: list[torch.Tensor] = field(default_factory=list)
    """One [B, nkv, T, d] for each step."""
    values: list[torch.Tensor] = field(default_factory=list)
    deeper: list["Chain"] = field(default_factory=list)
    """Those of the layers after the first."""


def decode(
    model: DraftModel,
    embeddings: torch.Tensor,
    hidden: torch.Tensor,
    chain: Chain,
    *,
    swapped: bool = False,
) -> torch.Tensor:
    """Run the decoder layers for one draft step, and return their output before the final norm.

    ``embeddings`` [B, T, H] are those of the tokens this step is fed, ``hidden`` [B, T, H] comes
    from ``join`` in step 0 and from the step before later. Position t of step k stands at t + k,
    and attends to step 0 up to t and to its own entries of the steps after: what a served chain
    sees. ``swapped`` joins the hidden half first, a hypothesis of the search.
    """
    settings, weights = model.settings, model.weights
    eps = settings.rms_eps
    normed = rms_norm(hidden, weights["layer.hidden_norm.weight"], eps)
    residual = normed if settings.norm_before_residual else hidden
    embedded = rms_norm(embeddings, weights["layer.input_layernorm.weight"], eps)
    halves = [normed, embedded] if swapped else [embedded, normed]
    out = _block(model, "layer", torch.cat(halves, dim=-1), residual, chain)
    for number in range(1, settings.layers):
        if len(chain.deeper) < number:
            chain.deeper.append(Chain())
        layer = f"layers.{number}"
        x = rms_norm(out, weights[f"{layer}.input_layernorm.weight"], eps)
        out = _block(model, layer, x, out, chain.deeper[number - 1])
    return out


def _block(
    model: DraftModel, layer: str, x: torch.Tensor, residual: torch.Tensor, chain: Chain
) -> torch.Tensor:
    """Attend and run the MLP of one layer.

    x [B, T, 2H] (H in later layers) and residual [B, T, H] give [B, T, H].
    """
    settings, weights = model.settings, model.weights
    batch, length, _ = x.shape
    step = len(chain.keys)

    def heads(name: str, count: int) -> torch.Tensor:
        flat = x @ weights[f"{layer}.self_attn.{name}.weight"].T
        return flat.view(batch, length, count, settings.head_size).transpose(1, 2)

    cosines, sines = rope_table(
        settings.rope,
        settings.head_size,
        length + step,
        model.device,
        max_positions=settings.max_positions,
    )
    cosines, sines = cosines[step:], sines[step:]
    queries = rotate(heads("q_proj", settings.heads), cosines, sines)  # [B, nh, T, d]
    chain.keys.append(rotate(heads("k_proj", settings.kv_heads), cosines, sines))
    chain.values.append(heads("v_proj", settings.kv_heads))
    attended = attend(queries, chain)  # [B, nh, T, d]
    flat = attended.transpose(1, 2).reshape(batch, length, settings.heads * settings.head_size)
    residual = residual + flat @ weights[f"{layer}.self_attn.o_proj.weight"].T
    y = rms_norm(residual, weights[f"{layer}.post_attention_layernorm.weight"], settings.rms_eps)
    gate = torch.nn.functional.silu(y @ weights[f"{layer}.mlp.gate_proj.weight"].T)
    up = y @ weights[f"{layer}.mlp.up_proj.weight"].T
    return residual + (gate * up) @ weights[f"{layer}.mlp.down_proj.weight"].T


def attend(queries: torch.Tensor, chain: Chain) -> torch.Tensor:
    """Attend from each position to step 0 up to itself and to its own later entries.

    queries [B, nh, T, d] give [B, nh, T, d]. Queries go in chunks: keys are T of step 0 and, for
    each later step, the chunk's own.
    """
    length = queries.shape[2]
    pieces = []
    for start in range(0, length, QUERY_CHUNK):
        stop = min(start + QUERY_CHUNK, length)
        keys = [chain.keys[0][:, :, :stop], *(k[:, :, start:stop] for k in chain.keys[1:])]
        values = [chain.values[0][:, :, :stop], *(v[:, :, start:stop] for v in chain.values[1:])]
        rows = torch.arange(start, stop, device=queries.device)
        causal = torch.arange(stop, device=queries.device) <= rows[:, None]
        own = torch.eye(stop - start, dtype=torch.bool, device=queries.device)
        mask = torch.cat([causal, *([own] * (len(keys) - 1))], dim=1)  # [chunk, keys]
        pieces.append(
            torch.nn.functional.scaled_dot_product_attention(
                queries[:, :, start:stop],
                torch.cat(keys, dim=2),
                torch.cat(values, dim=2),
                attn_mask=mask,
                enable_gqa=True,
            )
        )
    return torch.cat(pieces, dim=2)


def logits(model: DraftModel, hidden: torch.Tensor) -> torch.Tensor:
    """Return the draft's logits over its own vocabulary: [..., H] gives [..., Vd]."""
    normed = rms_norm(hidden, model.weights["norm.weight"], model.settings.rms_eps)
    return normed @ model.weights["lm_head.weight"].T


def recur(model: DraftModel, hidden: torch.Tensor) -> torch.Tensor:
    """Return what the next step is fed: the output, normed where ``norm_output`` says so."""
    if not model.settings.norm_output:
        return hidden
    return rms_norm(hidden, model.weights["norm.weight"], model.settings.rms_eps)


def _borrowed_head(
    checkpoint: Checkpoint, settings: DraftSettings, target: Checkpoint | None
) -> tuple[Checkpoint, str]:
    if settings.draft_vocabulary != settings.vocabulary:
        raise ConfigError(
            f"{checkpoint.folder}: no lm_head.weight, and the target's has another vocabulary",
            hint=f"the draft needs its own of {settings.draft_vocabulary} rows",
        )
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        if target is not None and name in target.tensors:
            return target, name
    raise ConfigError(
        f"{checkpoint.folder}: no lm_head.weight", hint="give the target, whose head is used"
    )


def _offsets(
    checkpoint: Checkpoint, roles: dict[str, str], settings: DraftSettings
) -> torch.Tensor:
    """Return d2t, checked; zeros where draft and target have one vocabulary."""
    size = settings.draft_vocabulary
    if "d2t" not in roles:
        if size != settings.vocabulary:
            raise ConfigError(
                f"{checkpoint.folder}: no d2t, but draft_vocab_size {size} is not vocab_size "
                f"{settings.vocabulary}",
                hint="engines would then take draft id k for target id k; save d2t with the draft",
            )
        return torch.zeros(size, dtype=torch.int64)
    values = torch.tensor(checkpoint.integers(roles["d2t"]), dtype=torch.int64)
    if values.numel() != size:
        raise ConfigError(
            f"{checkpoint.folder}: d2t has {values.numel()} entries for draft_vocab_size {size}"
        )
    return values
