"""The forward pass against an independent one: position by position, with a growing cache."""

import math
from pathlib import Path

import pytest

from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.model import (
    QUERY_CHUNK,
    Chain,
    DraftModel,
    attend,
    decode,
    join,
    load_draft,
    logits,
    recur,
)
from eaglemon.draft.rope import rope_table
from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError
from tests.draft.conftest import HEAD, HEADS, KV_HEADS, VOCABULARY, H, draft_tensors, write_draft

EPS = 1e-5


def naive_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean() + EPS).sqrt() * weight


def naive_rotate(vector: torch.Tensor, position: int) -> torch.Tensor:
    """Rotate pairs (i, i + d/2) as complex numbers."""
    half = HEAD // 2
    turns = torch.tensor([position * 10000.0 ** (-2 * i / HEAD) for i in range(half)])
    turned = torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones(half), turns)
    return torch.cat([turned.real, turned.imag])


class NaiveDraft:
    """One token at a time, as a server drafts: a cache of (key, value) that grows."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.w = {name.removeprefix("midlayer."): value for name, value in tensors.items()}

    def step(
        self,
        embedding: torch.Tensor,
        hidden: torch.Tensor,
        position: int,
        cache: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        w = self.w
        x = torch.cat(
            [
                naive_norm(embedding, w["input_layernorm.weight"]),
                naive_norm(hidden, w["hidden_norm.weight"]),
            ]
        )
        q = (w["self_attn.q_proj.weight"] @ x).view(HEADS, HEAD)
        k = (w["self_attn.k_proj.weight"] @ x).view(KV_HEADS, HEAD)
        v = (w["self_attn.v_proj.weight"] @ x).view(KV_HEADS, HEAD)
        cache.append((torch.stack([naive_rotate(head, position) for head in k]), v))
        attended = []
        for head in range(HEADS):
            shared = head * KV_HEADS // HEADS
            query = naive_rotate(q[head], position)
            scores = torch.stack([query @ key[shared] for key, _ in cache]) / math.sqrt(HEAD)
            weights = torch.exp(scores - scores.max())
            weights = weights / weights.sum()
            values = [
                weight * value[shared] for weight, (_, value) in zip(weights, cache, strict=True)
            ]
            attended.append(torch.stack(values).sum(0))
        residual = hidden + w["self_attn.o_proj.weight"] @ torch.cat(attended)
        y = naive_norm(residual, w["post_attention_layernorm.weight"])
        gate = w["mlp.gate_proj.weight"] @ y
        inner = gate / (1 + torch.exp(-gate)) * (w["mlp.up_proj.weight"] @ y)
        return residual + w["mlp.down_proj.weight"] @ inner


@pytest.fixture
def model(tmp_path: Path) -> DraftModel:
    return load_draft(open_checkpoint(write_draft(tmp_path / "draft")))


def test_chains_agree_with_drafting_token_by_token(model: DraftModel) -> None:
    """Steps over all positions at once equal a chain drafted from one position with a cache."""
    tensors = draft_tensors()
    naive = NaiveDraft(tensors)
    length, steps = 12, 4
    features = [torch.randn(1, length, H) for _ in range(3)]
    embedded = [torch.randn(1, length, H) for _ in range(steps)]
    with torch.inference_mode():
        hidden, chain, outputs = join(model, features), Chain(), []
        for step in range(steps):
            hidden = decode(model, embedded[step], hidden, chain)
            outputs.append(hidden[0])
            hidden = recur(model, hidden)
        for start in (0, 5, length - 1):
            cache: list[tuple[torch.Tensor, torch.Tensor]] = []
            out = torch.empty(0)
            for position in range(start + 1):
                joined = tensors["fc.weight"] @ torch.cat([f[0, position] for f in features])
                out = naive.step(embedded[0][0, position], joined, position, cache)
            for step in range(steps):
                if step:
                    out = naive.step(embedded[step][0, start], out, start + step, cache)
                assert torch.allclose(outputs[step][start], out, atol=1e-4, rtol=1e-4)
                expected = tensors["lm_head.weight"] @ naive_norm(out, tensors["norm.weight"])
                assert torch.allclose(logits(model, outputs[step][start]), expected, atol=1e-4)


def test_chunks_of_queries_change_nothing() -> None:
    length = QUERY_CHUNK + 40
    keys = [torch.randn(1, KV_HEADS, length, HEAD) for _ in range(2)]
    queries = torch.randn(1, HEADS, length, HEAD)
    out = attend(queries, Chain(keys=keys, values=keys))
    last = torch.cat([keys[0][:, :, :], keys[1][:, :, -1:]], dim=2)
    alone = torch.nn.functional.scaled_dot_product_attention(
        queries[:, :, -1:], last, last, enable_gqa=True
    )
    assert torch.allclose(out[:, :, -1:], alone, atol=1e-5)


def test_bfloat16_stays_near_float32(tmp_path: Path, model: DraftModel) -> None:
    rough = load_draft(open_checkpoint(tmp_path / "draft"), dtype=torch.bfloat16)
    x = torch.randn(1, 6, H)
    exact = decode(model, x, x, Chain())
    near = decode(rough, x.bfloat16(), x.bfloat16(), Chain())
    assert near.dtype == torch.bfloat16
    assert torch.allclose(near.float(), exact, atol=0.1, rtol=0.1)


def test_norm_flags_change_the_pass(tmp_path: Path) -> None:
    tensors = draft_tensors()
    tensors |= {f"fc_norm.{slot}.weight": torch.full((H,), 2.0) for slot in range(3)}
    tensors["input_norm.weight"] = torch.full((3 * H,), 3.0)
    generator = torch.Generator().manual_seed(3)
    features = [torch.randn(1, 4, H, generator=generator) for _ in range(3)]
    plain = load_draft(open_checkpoint(write_draft(tmp_path / "plain", tensors)))
    chunks = load_draft(open_checkpoint(write_draft(tmp_path / "a", tensors, fc_norm=True)))
    whole = load_draft(open_checkpoint(write_draft(tmp_path / "b", tensors, norm_before_fc=True)))
    fc = tensors["fc.weight"]
    two = torch.full((H,), 2.0)
    normed = torch.cat([naive_norm(f[0, 1], two) for f in features])
    joined = naive_norm(torch.cat([f[0, 1] for f in features]), torch.full((3 * H,), 3.0))
    joins = fc @ torch.cat([f[0, 1] for f in features])
    assert torch.allclose(join(plain, features)[0, 1], joins, atol=1e-5)
    assert torch.allclose(join(chunks, features)[0, 1], fc @ normed, atol=1e-5)
    assert torch.allclose(join(whole, features)[0, 1], fc @ joined, atol=1e-5)


def test_the_layout_of_speculators_is_the_same_draft(tmp_path: Path, model: DraftModel) -> None:
    renamed = {
        name.replace("midlayer.", "model.layers.0."): value
        for name, value in draft_tensors().items()
    }
    other = load_draft(open_checkpoint(write_draft(tmp_path / "other", renamed)))
    assert all(torch.equal(other.weights[role], value) for role, value in model.weights.items())


def test_rope_scalings() -> None:
    plain, _ = rope_table({"rope_type": "default", "rope_theta": 1e4}, HEAD, 16, "cpu")
    linear = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    assert torch.allclose(rope_table(linear, HEAD, 31, "cpu")[0][::2], plain, atol=1e-6)
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    # Short wavelengths are kept as they are, the longest ones stretched.
    assert torch.allclose(rope_table(llama3, HEAD, 16, "cpu")[0][:, 0], plain[:, 0])
    yarn = {**llama3, "rope_type": "yarn", "factor": 4.0}
    assert rope_table(yarn, HEAD, 16, "cpu")[0][0, 0].item() == pytest.approx(
        0.1 * math.log(4.0) + 1
    )
    with pytest.raises(ConfigError, match="rope_type 'odd' is not supported"):
        rope_table({"rope_type": "odd", "rope_theta": 1e4}, HEAD, 4, "cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lm_head.weight", "no lm_head.weight, and the target's has another vocabulary"),
        ("d2t", "no d2t, but draft_vocab_size 40 is not vocab_size 48"),
        ("norm.weight", "no tensor norm.weight"),
        ("fc.weight", "no fc.weight"),
    ],
)
def test_missing_tensors_are_named(tmp_path: Path, name: str, message: str) -> None:
    tensors = draft_tensors()
    del tensors[name]
    folder = write_draft(tmp_path / "draft", tensors)
    with pytest.raises(ConfigError, match=message):
        load_draft(open_checkpoint(folder))


def test_other_architectures_are_named(tmp_path: Path) -> None:
    latent = draft_tensors() | {"midlayer.self_attn.kv_a_proj_with_mqa.weight": torch.zeros(4, 4)}
    with pytest.raises(ConfigError, match="multi-head latent attention"):
        load_draft(open_checkpoint(write_draft(tmp_path / "mla", latent)))
    with pytest.raises(ConfigError, match=r"no tensor layers\.1\.input_layernorm\.weight"):
        load_draft(open_checkpoint(write_draft(tmp_path / "two", num_hidden_layers=2)))


def second_layer() -> dict[str, torch.Tensor]:
    """Return a plain Llama layer: it is fed H where the first is fed 2H."""
    first = {k: v for k, v in draft_tensors(seed=5).items() if k.startswith("midlayer.")}
    layer = {}
    for name, value in first.items():
        halved = name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
        layer[name.replace("midlayer.", "layers.1.")] = value[:, :H].clone() if halved else value
    del layer["layers.1.hidden_norm.weight"]
    return layer


def test_later_layers_are_plain_llama_layers(tmp_path: Path, model: DraftModel) -> None:
    second = second_layer()
    w = {name.removeprefix("layers.1."): value for name, value in second.items()}
    folder = write_draft(tmp_path / "two", draft_tensors() | second, num_hidden_layers=2)
    two = load_draft(open_checkpoint(folder))
    generator = torch.Generator().manual_seed(2)
    embeddings, hidden = (torch.randn(1, 6, H, generator=generator) for _ in range(2))
    first = decode(model, embeddings, hidden, Chain())
    out = decode(two, embeddings, hidden, Chain())
    # The first position attends to itself alone, so its attention is its own value.
    before = first[0, 0]
    value = w["self_attn.v_proj.weight"] @ naive_norm(before, w["input_layernorm.weight"])
    shared = value.view(KV_HEADS, HEAD).repeat_interleave(HEADS // KV_HEADS, 0).flatten()
    residual = before + w["self_attn.o_proj.weight"] @ shared
    y = naive_norm(residual, w["post_attention_layernorm.weight"])
    gate = torch.nn.functional.silu(w["mlp.gate_proj.weight"] @ y)
    expected = residual + w["mlp.down_proj.weight"] @ (gate * (w["mlp.up_proj.weight"] @ y))
    assert torch.allclose(out[0, 0], expected, atol=1e-5)
    # Each layer has a cache of its own over the steps of a chain.
    chain = Chain()
    decode(two, embeddings, decode(two, embeddings, hidden, chain), chain)
    assert (len(chain.keys), len(chain.deeper), len(chain.deeper[0].keys)) == (2, 1, 2)
    # A layer that adds nothing changes nothing.
    for name in ("layers.1.self_attn.o_proj.weight", "layers.1.mlp.down_proj.weight"):
        second[name] = torch.zeros_like(second[name])
    folder = write_draft(tmp_path / "idle", draft_tensors() | second, num_hidden_layers=2)
    idle = load_draft(open_checkpoint(folder))
    assert torch.allclose(decode(idle, embeddings, hidden, Chain()), first, atol=1e-6)


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    tensors = draft_tensors()
    tensors["norm.weight"][3] = float("nan")
    with pytest.raises(ConfigError, match=r"norm\.weight has values that are not finite"):
        load_draft(open_checkpoint(write_draft(tmp_path / "draft", tensors)))


def test_a_full_vocabulary_borrows_the_target_head(tmp_path: Path) -> None:
    tensors = {k: v for k, v in draft_tensors().items() if k not in {"d2t", "t2d"}}
    tensors["lm_head.weight"] = torch.randn(VOCABULARY, H)
    target = open_checkpoint(write_draft(tmp_path / "target", dict(tensors)))
    del tensors["lm_head.weight"]
    folder = write_draft(tmp_path / "draft", tensors, draft_vocab_size=None)
    model = load_draft(open_checkpoint(folder), target=target)
    assert model.weights["lm_head.weight"].shape == (VOCABULARY, H)
    assert not model.offsets.any()
