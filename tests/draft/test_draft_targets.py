"""What a target's own kind means for what the draft is expected to say."""

import json
from pathlib import Path

import pytest

from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.hidden import read_records
from eaglemon.draft.model import load_draft, rms_norm
from eaglemon.draft.passages import Material, prepare
from eaglemon.draft.store import save_tensors
from eaglemon.draft.torch_lib import torch
from eaglemon.errors import ConfigError
from tests.draft.conftest import LAYERS, VOCABULARY, H, write_draft, write_target

LENGTH = 24


def target_of(folder: Path, model_type: str) -> tuple[Path, torch.Tensor, torch.Tensor]:
    """Write a target of a kind; return it with its norm's weights and its head."""
    target = write_target(folder)
    file = target / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": model_type}))
    generator = torch.Generator().manual_seed(3)
    weights = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, H, generator=generator),
        "model.norm.weight": torch.randn(H, generator=generator),
        "lm_head.weight": torch.randn(VOCABULARY, H, generator=generator),
    }
    save_tensors(target / "model.safetensors", weights)
    return target, weights["model.norm.weight"], weights["lm_head.weight"]


def prepared(folder: Path, target: Path, **tensors: torch.Tensor) -> Material:
    hidden = folder / "hidden.safetensors"
    save_tensors(hidden, tensors)
    draft, read = open_checkpoint(write_draft(folder / "draft")), open_checkpoint(target)
    return prepare(read_records(hidden), load_draft(draft), draft=draft, target=read)


def states() -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(1, LAYERS + 1, LENGTH, H, generator=generator)


@pytest.mark.parametrize(
    ("model_type", "added"),
    [
        ("llama", 0),
        ("qwen2", 0),
        ("qwen3", 0),
        ("qwen3_moe", 0),
        ("mistral", 0),
        ("qwen3_next", 1),
        ("qwen3_5_text", 1),
        ("qwen3_5_moe", 1),
        ("gemma", 1),
        ("gemma2", 1),
        ("gemma3_text", 1),
        ("gemma4", 0),
    ],
)
def test_final_norms_of_some_targets_add_one_to_their_weights(
    tmp_path: Path, model_type: str, added: int
) -> None:
    target, weight, head = target_of(tmp_path / "target", model_type)
    hidden = states()
    choices = (rms_norm(hidden[0, -1], weight + added, 1e-5) @ head.T).argmax(-1)
    text = torch.cat([torch.zeros(1, dtype=torch.int64), choices[:-1]])
    material = prepared(tmp_path, target, input_ids=text[None], hidden_states=hidden)
    assert material.notes == ()
    assert torch.equal(material.passages[0].expected, choices)


def test_what_the_targets_own_head_chose_comes_first(tmp_path: Path) -> None:
    """A head may scale, bias or cut its scores, which its matrix does not tell."""
    target, _, _ = target_of(tmp_path / "target", "cohere")
    choices = torch.arange(LENGTH) % VOCABULARY
    text = torch.cat([torch.zeros(1, dtype=torch.int64), choices[:-1]])
    material = prepared(
        tmp_path,
        target,
        input_ids=text[None],
        hidden_states=states(),
        target_argmax=choices[None],
    )
    assert material.notes == ()
    assert torch.equal(material.passages[0].expected, choices)


def test_choices_of_another_shape_are_refused(tmp_path: Path) -> None:
    target, _, _ = target_of(tmp_path / "target", "llama")
    ids = torch.zeros(1, LENGTH, dtype=torch.int64)
    with pytest.raises(ConfigError, match=r"target_argmax is \[1, 23\]"):
        prepared(tmp_path, target, input_ids=ids, hidden_states=states(), target_argmax=ids[:, :-1])
