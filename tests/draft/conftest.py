"""Small drafts and targets: random ones made here, and the trained ones beside the repository.

The trained ones (``../shared/models``) are there in CI; where they are not, tests over them are
skipped and say so.
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from eaglemon.draft.store import save_tensors
from eaglemon.draft.torch_lib import torch, use_threads

MODELS = Path(__file__).parents[3] / "shared" / "models"
H, VOCABULARY, DRAFT_VOCABULARY, LAYERS, HEADS, KV_HEADS, HEAD, MLP = 32, 48, 40, 8, 4, 2, 8, 64

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "vocab_size": VOCABULARY,
    "draft_vocab_size": DRAFT_VOCABULARY,
    "hidden_size": H,
    "intermediate_size": MLP,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]},
}


@pytest.fixture(autouse=True)
def _few_threads() -> None:
    # More threads than free cores make torch wait for itself, and these models are tiny.
    use_threads(1)


@pytest.fixture
def models() -> Path:
    """The trained models, read only."""
    if not MODELS.is_dir():
        pytest.skip("../shared/models is not beside the repository")
    return MODELS


def draft_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return a random draft in SpecForge's layout."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        values: torch.Tensor = torch.randn(*shape, generator=generator)
        return values / math.sqrt(shape[-1])

    def scale(size: int) -> torch.Tensor:
        values: torch.Tensor = torch.randn(size, generator=generator)
        return 1 + 0.1 * values

    known = sorted(torch.randperm(VOCABULARY, generator=generator)[:DRAFT_VOCABULARY].tolist())
    marked = torch.zeros(VOCABULARY, dtype=torch.bool)
    marked[known] = True
    return {
        "fc.weight": matrix(H, 3 * H),
        "midlayer.input_layernorm.weight": scale(H),
        "midlayer.hidden_norm.weight": scale(H),
        "midlayer.self_attn.q_proj.weight": matrix(HEADS * HEAD, 2 * H),
        "midlayer.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD, 2 * H),
        "midlayer.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD, 2 * H),
        "midlayer.self_attn.o_proj.weight": matrix(H, HEADS * HEAD),
        "midlayer.post_attention_layernorm.weight": scale(H),
        "midlayer.mlp.gate_proj.weight": matrix(MLP, H),
        "midlayer.mlp.up_proj.weight": matrix(MLP, H),
        "midlayer.mlp.down_proj.weight": matrix(H, MLP),
        "norm.weight": scale(H),
        "lm_head.weight": matrix(DRAFT_VOCABULARY, H),
        "d2t": torch.tensor(known) - torch.arange(DRAFT_VOCABULARY),
        "t2d": marked,
    }


def write_draft(
    folder: Path,
    tensors: dict[str, torch.Tensor] | None = None,
    **changes: Any,
) -> Path:
    """Write a draft; ``changes`` replace keys of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / "model.safetensors", tensors or draft_tensors())
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}, indent=2))
    return folder


def write_target(folder: Path, seed: int = 7) -> Path:
    """Write the three tensors of a random target that a check needs."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, H, generator=generator),
        "model.norm.weight": torch.ones(H),
        "lm_head.weight": torch.randn(VOCABULARY, H, generator=generator),
    }
    save_tensors(folder / "model.safetensors", tensors)
    config = {
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": H,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def copy_model(source: Path, folder: Path) -> Path:
    """Copy a read-only model to where it can be changed."""
    return Path(shutil.copytree(source, folder, copy_function=shutil.copyfile))
