"""What the files of a draft say: consistency, both layouts, and the repairs of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from eaglemon.core.wiring import TargetShape
from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.inspect import inspect, read_token_counts
from eaglemon.draft.model import join, load_draft
from eaglemon.draft.repair import carry_out, plan_layers, plan_permutation, undo
from eaglemon.draft.torch_lib import torch
from eaglemon.engines.wiring import wiring_of
from eaglemon.errors import ConfigError, UsageError
from tests.draft.conftest import (
    DRAFT_VOCABULARY,
    VOCABULARY,
    H,
    draft_tensors,
    write_draft,
    write_target,
)

LLAMA = TargetShape(layers=8, model_type="llama")


def slugs(folder: Path, target: Path | None = None) -> list[str]:
    return [problem.slug for problem in inspect(folder, target=target).problems]


def test_a_sound_draft_has_no_problems(tmp_path: Path) -> None:
    view = inspect(write_draft(tmp_path / "draft"), target=write_target(tmp_path / "target"))
    assert view.problems == ()
    assert (view.layout, view.attention, view.captured) == ("midlayer", "llama", 3)
    assert (view.vocabulary, view.draft_vocabulary) == (VOCABULARY, DRAFT_VOCABULARY)
    assert view.layer_ids == (("eagle_config.eagle_aux_hidden_state_layer_ids", (1, 3, 4)),)
    assert {capture.engine for capture in view.captures} == {"SGLang", "vLLM"}


def test_inspect_needs_no_torch(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    code = (
        "import sys; from pathlib import Path; from eaglemon.draft.inspect import inspect; "
        f"inspect(Path({str(folder)!r})); import eaglemon.draft.repair; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_commands_are_listed_without_torch_or_network() -> None:
    code = (
        "import sys, eaglemon.cli.draft; "
        "sys.exit(bool({'torch', 'asyncio', 'asyncssh', 'httpx'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_and_shapes_are_compared(tmp_path: Path) -> None:
    tensors = draft_tensors()
    tensors["midlayer.extra.weight"] = torch.zeros(2)
    tensors["norm.weight"] = torch.zeros(H + 1)
    del tensors["midlayer.hidden_norm.weight"]
    found = slugs(write_draft(tmp_path / "draft", tensors))
    assert sorted(found) == ["missing-tensor", "tensor-shape", "unknown-tensor"]


def test_the_vocabulary_is_checked(tmp_path: Path) -> None:
    tensors = draft_tensors()
    zeros = tensors | {"d2t": torch.zeros(DRAFT_VOCABULARY, dtype=torch.int64)}
    assert "all zeros" in str(inspect(write_draft(tmp_path / "a", zeros)).problems[0])
    known = tensors["d2t"] + torch.arange(DRAFT_VOCABULARY)
    absolute = tensors | {"d2t": known}
    assert "absolute ids" in str(inspect(write_draft(tmp_path / "b", absolute)).problems[0])
    marked = tensors | {"t2d": ~tensors["t2d"]}
    assert "t2d: disagrees" in str(inspect(write_draft(tmp_path / "c", marked)).problems[0])
    del tensors["d2t"]
    assert slugs(write_draft(tmp_path / "d", tensors)) == ["missing-tensor"]


def test_norm_flags_are_compared_with_the_weights(tmp_path: Path) -> None:
    tensors = draft_tensors() | {"input_norm.weight": torch.ones(3 * H)}
    tensors |= {f"fc_norm.{slot}.weight": torch.ones(H) for slot in range(3)}
    found = slugs(write_draft(tmp_path / "draft", tensors))
    assert found.count("norm-flag") == 2
    assert "norm-ignored" in found


def test_the_target_is_compared(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    short = write_draft(tmp_path / "a", max_position_embeddings=128)
    assert slugs(short, target) == ["draft-context"]
    other = write_draft(tmp_path / "b", rope_theta=5e5)
    assert slugs(other, target) == ["target-mismatch"]
    deeper = write_draft(
        tmp_path / "c", eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 58]}
    )
    assert "beyond the target's 8 layers" in str(inspect(deeper, target=target).problems[0])


def test_coverage_of_counted_tokens(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    known = (draft_tensors()["d2t"] + torch.arange(DRAFT_VOCABULARY)).tolist()
    unknown = next(token for token in range(VOCABULARY) if token not in known)
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps({str(known[0]): 3, str(unknown): 1}))
    view = inspect(folder, token_counts=read_token_counts(counts))
    assert view.coverage == pytest.approx(0.75)
    counts.write_text("[1, 2")
    with pytest.raises(ConfigError, match="no token counts"):
        read_token_counts(counts)


def test_mla_drafts_are_recognised(tmp_path: Path) -> None:
    tensors = draft_tensors() | {"midlayer.self_attn.kv_b_proj.weight": torch.zeros(4, 4)}
    view = inspect(write_draft(tmp_path / "draft", tensors))
    assert view.attention == "mla"


def test_speculators_configurations_are_read(tmp_path: Path) -> None:
    inner = {
        "hidden_size": H,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 64,
        "vocab_size": VOCABULARY,
        "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
    }
    renamed = {n.replace("midlayer.", "layers.0."): v for n, v in draft_tensors().items()}
    folder = write_draft(tmp_path / "draft", renamed)
    config = {
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": DRAFT_VOCABULARY,
        "transformer_layer_config": inner,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
        "norm_before_residual": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    view = inspect(folder)
    assert view.layout == "layers.0"
    assert view.hidden_size == H
    assert [p.slug for p in view.problems] == ["norm-ignored"]
    model = load_draft(open_checkpoint(folder))
    assert model.settings.norm_before_residual
    assert model.settings.rope["rope_theta"] == 5e5


def test_layers_are_set_and_undone(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    before = (folder / "config.json").read_bytes()
    config = json.loads(before)
    repair = plan_layers(folder, wiring_of("vllm").wire(config, (0, 2, 4), LLAMA))
    assert any("eagle_aux_hidden_state_layer_ids" in line for line in repair.difference)
    assert (folder / "config.json").read_bytes() == before
    assert carry_out(repair) == ("config.json.before-1",)
    after = json.loads((folder / "config.json").read_text())
    assert after["eagle_aux_hidden_state_layer_ids"] == [0, 2, 4]
    assert after["eagle_config"] == config["eagle_config"]
    again = plan_layers(folder, wiring_of("vllm").wire(after, (0, 2, 4), LLAMA))
    assert again.difference == ()
    assert undo(folder).title == "eagle_aux_hidden_state_layer_ids = [0, 2, 4]"
    assert (folder / "config.json").read_bytes() == before
    with pytest.raises(UsageError, match="no repair to undo"):
        undo(folder)
    left = {path.name for path in folder.iterdir()}
    assert left == {"config.json", "model.safetensors"}


def test_a_permutation_moves_the_slots_and_their_norms(tmp_path: Path) -> None:
    tensors = draft_tensors()
    tensors |= {f"fc_norm.{slot}.weight": torch.randn(H) for slot in range(3)}
    folder = write_draft(tmp_path / "draft", tensors, fc_norm=True)
    before = (folder / "model.safetensors").read_bytes()
    features = [torch.randn(1, 4, H) for _ in range(3)]
    expected = join(load_draft(open_checkpoint(folder)), features)
    repair = plan_permutation(open_checkpoint(folder), (2, 0, 1))
    assert len(repair.difference) == 4
    carry_out(repair)
    moved = load_draft(open_checkpoint(folder))
    found = join(moved, [features[2], features[0], features[1]])
    assert torch.allclose(found, expected, atol=1e-5)
    others = load_file(folder / "model.safetensors")
    untouched = set(tensors) - {"fc.weight"} - {n for n in tensors if n.startswith("fc_norm")}
    assert all(torch.equal(others[name], tensors[name]) for name in untouched)
    undo(folder)
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), (1, 2, 3)])
def test_orders_that_are_none_are_refused(tmp_path: Path, order: tuple[int, ...]) -> None:
    draft = open_checkpoint(write_draft(tmp_path / "draft"))
    with pytest.raises(UsageError, match="is no order of 3 slots"):
        plan_permutation(draft, order)


def test_repairs_are_undone_newest_first(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    config = json.loads((folder / "config.json").read_text())
    carry_out(plan_layers(folder, wiring_of("vllm").wire(config, (0, 2, 4), LLAMA)))
    carry_out(plan_permutation(open_checkpoint(folder), (1, 0, 2)))
    assert undo(folder).title.startswith("slots of fc")
    assert undo(folder).title.startswith("eagle_aux")
    assert json.loads((folder / "config.json").read_text()) == config


def test_a_lost_backup_is_told(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    carry_out(plan_permutation(open_checkpoint(folder), (1, 0, 2)))
    (folder / "model.safetensors.before-1").unlink()
    with pytest.raises(ConfigError, match="the backup is gone"):
        undo(folder)
