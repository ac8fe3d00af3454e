"""Captures of small random targets of several kinds, in transformers (``make test-engine``).

What is captured must be what enters each block, and what leaves the last, to the last bit.
Needs ``EAGLEMON_VLLM_PYTHON``, whose transformers is used, and ``EAGLEMON_MODELS`` for a tokenizer.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.real_engine.test_real_draft import python_of_vllm
from tests.real_engine.test_real_vllm import MODELS, ROOT, eaglemon

pytestmark = pytest.mark.engine

TARGETS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {"shards": True},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shards": True,
    },
    "mistral": {"head_dim": 16, "sliding_window": 32},
    "gemma3_text": {"head_dim": 16},
}

MAKE = """
import json, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

out, tokenizer, targets = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
common = dict(vocab_size=1024, hidden_size=64, intermediate_size=128, num_hidden_layers=6,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=96,
    bos_token_id=1, eos_token_id=2, pad_token_id=0)
plain = AutoTokenizer.from_pretrained(tokenizer)
plain.chat_template = None
for kind, settings in targets.items():
    shards = settings.pop("shards", False)
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **common, **settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0, 0.15) if weight.dim() > 1 else weight.normal_(0.5, 0.3)
    model.save_pretrained(f"{out}/{kind}", max_shard_size="100KB" if shards else "1GB")
    plain.save_pretrained(f"{out}/{kind}")
"""

COMPARE = """
import json, sys
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

sys.path.insert(0, sys.argv[1])
from pathlib import Path
from eaglemon.draft.capture import capture
from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.hidden import read_records
from eaglemon.draft.passages import target_choices
from dataclasses import replace

prompts = ["the quick brown fox jumps over", "A light-weight web point cloud"]
found = {}
for kind in sys.argv[3:]:
    target = Path(sys.argv[2]) / kind
    file = target / "hidden.safetensors"
    capture(target, prompts, file, new_tokens=32, threads=1)
    stored = load_file(file)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16).eval()
    blocks, seen, last = model.model.layers, [], []
    for block in blocks:
        block.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    blocks[-1].register_forward_hook(
        lambda _, given, out: last.append((out[0] if isinstance(out, tuple) else out)[0]))
    worst, choices = 0.0, []
    for row in range(len(prompts)):
        seen.clear(), last.clear()
        length = int(stored["lengths"][row])
        with torch.inference_mode():
            scores = model(stored["input_ids"][row, None, :length], use_cache=False).logits[0]
        truth = torch.stack([*seen, *last]).float()
        mine = stored["hidden_states"][row, :, :length].float()
        worst = max(worst, float((truth - mine).abs().max()))
        choices.append(scores.argmax(-1))
    records = read_records(file)
    told = all(torch.equal(r.choices, c) for r, c in zip(records, choices))
    alone = [replace(record, choices=None) for record in records]
    judged, normed, _ = target_choices(alone, open_checkpoint(target), "cpu")
    same = [float((a == b).float().mean()) for a, b in zip(judged, choices)]
    found[kind] = dict(worst=worst, layers=stored["layers"].tolist(), told=told, normed=normed,
        judged=min(same))
print(json.dumps(found))
"""


def in_transformers(program: str, *words: str) -> str:
    done = subprocess.run(
        [python_of_vllm(), "-c", program, *words],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        text=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    in_transformers(MAKE, str(folder), str(MODELS / "target"), json.dumps(TARGETS))
    return folder


def test_what_is_captured_enters_the_blocks(targets: Path) -> None:
    """Also what the target's head chooses, as told and as found from the last layer alone."""
    found = json.loads(in_transformers(COMPARE, str(ROOT), str(targets), *TARGETS))
    for kind, seen in found.items():
        print(f"\n{kind}: {seen}", file=sys.stderr)
        assert seen["worst"] == 0.0, kind
        assert seen["layers"] == list(range(7)), kind
        assert seen["told"], kind
        assert not seen["normed"], kind
        # In float32 for bfloat16: a near tie may fall the other way.
        assert seen["judged"] > 0.9, kind


def test_what_a_target_lacks_is_told(targets: Path, tmp_path: Path) -> None:
    prompts, hidden = tmp_path / "prompts.txt", tmp_path / "hidden.safetensors"
    prompts.write_text("the quick brown fox jumps over\nno\n" + "long " * 200 + "\n")
    words = ("--prompts", str(prompts), "-o", str(hidden), "--threads", "1")
    run = ("--python", python_of_vllm(), *words)
    code, _, talk = eaglemon(
        tmp_path, "draft", "capture", "--target", str(targets / "qwen3"), *run, "--chat"
    )
    assert (code, "has no chat template; capture without --chat" in talk) == (2, True), talk
    code, told, talk = eaglemon(
        tmp_path, "draft", "capture", "--target", str(targets / "qwen2"), *run
    )
    assert code == 0, talk
    notes = told["captured"]["notes"]
    assert any("no room to answer in the target's 96 positions" in note for note in notes)
    assert any("answers end at the target's 96 positions" in note for note in notes)
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in (targets / "qwen3").iterdir():
        if not file.name.startswith("token"):
            (bare / file.name).write_bytes(file.read_bytes())
    code, _, talk = eaglemon(tmp_path, "draft", "capture", "--target", str(bare), *run)
    assert code == 2, talk
    assert "see whether the tokenizer of" in talk
