"""The founding story on the real vLLM of this machine's CPU (``make test-engine``).

A draft trained on the embedding and two layers is served with three later layers: slower than no
draft at all. The draft doctor names the wiring, writes the fix, and the restarted server shows it.
Needs what ``test_real_vllm`` needs. Prints the figures it found.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.real_engine.test_real_vllm import MODELS, config, eaglemon

pytestmark = pytest.mark.engine
__all__ = ["config"]

REQUESTS = ("--requests", "8", "--max-tokens", "192", "--warmup", "2")

# Llama's own attention, MLP and norms with a draft's weights, run on the same inputs.
LAYER_OF_TRANSFORMERS = """
import json, sys
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaAttention, LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding)

folder, inputs, out = sys.argv[1:]
config = LlamaConfig(**json.load(open(folder + "/config.json")))
config._attn_implementation = "eager"
stored = load_file(folder + "/model.safetensors")
w = {name.removeprefix("midlayer."): value.float() for name, value in stored.items()}
H, eps = config.hidden_size, config.rms_norm_eps

def norm(name):
    module = LlamaRMSNorm(H, eps)
    module.weight.data = w[name]
    return module

attention = LlamaAttention(config, 0)
for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
    weight = w[f"self_attn.{name}.weight"]
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight.data = weight
    setattr(attention, name, linear)
mlp = LlamaMLP(config)
for name in ("gate_proj", "up_proj", "down_proj"):
    getattr(mlp, name).weight.data = w[f"mlp.{name}.weight"]
given = load_file(inputs)
embeddings, hidden = given["embeddings"], given["hidden"]
T = hidden.shape[1]
positions = torch.arange(T)[None]
mask = torch.full((T, T), float("-inf")).triu(1)[None, None]
with torch.inference_mode():
    halves = norm("input_layernorm.weight")(embeddings), norm("hidden_norm.weight")(hidden)
    x = torch.cat(halves, -1)
    rotary = LlamaRotaryEmbedding(config)(x, positions)
    residual = hidden + attention(x, position_embeddings=rotary, attention_mask=mask)[0]
    y = residual + mlp(norm("post_attention_layernorm.weight")(residual))
    logits = norm("norm.weight")(y) @ w["lm_head.weight"].T
json.dump({"out": y[0].tolist(), "logits": logits[0].tolist()}, open(out, "w"))
"""


def python_of_vllm() -> str:
    python = os.environ.get("EAGLEMON_VLLM_PYTHON", "")
    assert python, "set EAGLEMON_VLLM_PYTHON to an interpreter that has vLLM"
    return python


def prepare(folder: Path) -> Path:
    """Put the draft of the story in place, wired wrongly, and a baseline without speculation."""
    draft = folder / "draft"
    shutil.rmtree(draft)
    shutil.copytree(MODELS / "draft-embed-low-mid", draft, copy_function=shutil.copyfile)
    settings = json.loads((draft / "config.json").read_text())
    settings["eagle_aux_hidden_state_layer_ids"] = [2, 4, 5]
    (draft / "config.json").write_text(json.dumps(settings, indent=2))
    profiles = folder / "config" / "eaglemon" / "profiles"
    tiny = (profiles / "tiny.toml").read_text()
    head, _, rest = tiny.partition("[speculation]")
    head = "\n".join(line for line in head.splitlines() if not line.startswith("draft ="))
    flags = rest[rest.index("[flags]") :]
    (profiles / "plain.toml").write_text(f"{head}\n{flags}")
    return draft


def served(folder: Path, profile: str, result: Path) -> str:
    """Launch, probe into a result file, and return the id of the server, still running."""
    code, launched, talk = eaglemon(folder, "launch", profile, "--host", "local", "--wait")
    assert code == 0, (launched, talk)
    server = str(launched["server"]["id"])
    code, probed, talk = eaglemon(folder, "probe", server, *REQUESTS, "--out", str(result))
    assert code == 0, (probed, talk)
    return server


def figures(result: Path) -> dict[str, Any]:
    content = json.loads(result.read_text())
    probes = content.get("probes") or [content["probe"]]
    found = probes[0]["figures"]
    assert isinstance(found, dict)
    return found


def test_the_founding_story(config: Path) -> None:
    """One command names the wiring: it probes, captures in the engine's Python, and looks."""
    draft = prepare(config)
    results = {name: config / f"{name}.json" for name in ("plain", "wrong", "right")}
    server = served(config, "plain", results["plain"])
    eaglemon(config, "kill", server, "--yes")
    server = served(config, "tiny", results["wrong"])
    try:
        code, told, talk = eaglemon(
            config,
            *("draft", "diagnose", server, "--capture", "--yes", "--threads", "1"),
            *("--against", str(results["plain"])),
        )
    finally:
        eaglemon(config, "kill", server, "--yes")
    assert "capturing loads the target (12 MiB" in talk
    assert told["engine_version"].startswith("0.32.0")
    assert told["captured"]["sequences"] == 16
    diagnosis = told["diagnosis"]
    assert code == 1, talk
    assert diagnosis["verdict"] == "wiring"
    assert (diagnosis["captured"], diagnosis["trained"]) == ([2, 4, 5], [0, 2, 4])
    (fix, *_) = diagnosis["fixes"]
    command = fix.removeprefix("eaglemon ").partition(" (writes")[0].split()
    code, fixed, talk = eaglemon(config, *command, "--yes")
    assert code == 0, (fixed, talk)
    assert fixed["written"]
    assert json.loads((draft / "config.json").read_text())["eagle_aux_hidden_state_layer_ids"] == [
        0,
        2,
        4,
    ]
    server = served(config, "tiny", results["right"])
    eaglemon(config, "kill", server, "--yes")
    plain, wrong, right = (figures(results[name]) for name in ("plain", "wrong", "right"))
    assert wrong["accept_length"] < 1.8
    assert right["accept_length"] > 3
    # Fed wrongly it costs more than no draft on a quiet machine; the arms run minutes apart, so on
    # a busy one only the gap between the two wirings is wide enough to be sure of.
    assert wrong["user_tok_s"] < right["user_tok_s"]
    assert plain["user_tok_s"] < right["user_tok_s"]
    print(
        f"\nbaseline {plain['user_tok_s']:.0f} tok/s; wrong wiring {wrong['accept_length']:.2f}, "
        f"{wrong['user_tok_s']:.0f} tok/s; {diagnosis['sentence']}; fixed "
        f"{right['accept_length']:.2f}, {right['user_tok_s']:.0f} tok/s; offline as served "
        f"{diagnosis['offline_as_served']}, served {diagnosis['served']}, "
        f"offline as trained {diagnosis['offline']}"
    )


def test_the_layer_agrees_with_transformers(tmp_path: Path) -> None:
    from eaglemon.draft.checkpoint import open_checkpoint
    from eaglemon.draft.model import Chain, decode, load_draft, logits
    from eaglemon.draft.store import save_tensors
    from eaglemon.draft.torch_lib import torch

    folder = MODELS / "draft-low-mid-high"
    inputs = {"embeddings": torch.randn(1, 40, 256), "hidden": torch.randn(1, 40, 256)}
    save_tensors(tmp_path / "inputs.safetensors", inputs)
    words = [folder, tmp_path / "inputs.safetensors", tmp_path / "out.json"]
    subprocess.run([python_of_vllm(), "-c", LAYER_OF_TRANSFORMERS, *map(str, words)], check=True)
    theirs = json.loads((tmp_path / "out.json").read_text())
    model = load_draft(open_checkpoint(folder))
    with torch.inference_mode():
        out = decode(model, inputs["embeddings"], inputs["hidden"], Chain())
        scores = logits(model, out)
    for ours, name in ((out, "out"), (scores, "logits")):
        difference = float((ours[0] - torch.tensor(theirs[name])).abs().max())
        print(f"\n{name}: largest difference {difference:.1e}")
        assert difference < 1e-4


def test_a_capture_is_what_the_samples_are(tmp_path: Path) -> None:
    """Two prompts, captured in vLLM's Python, give a draft that is as good as on the samples."""
    prompts, hidden = tmp_path / "prompts.txt", tmp_path / "hidden.safetensors"
    prompts.write_text("ops: A package for creating and managing\nA light-weight web point cloud\n")
    words = ("--target", str(MODELS / "target"), "--prompts", str(prompts), "-o", str(hidden))
    code, captured, talk = eaglemon(
        tmp_path,
        *("draft", "capture", *words, "--new-tokens", "64", "--threads", "1"),
        *("--python", python_of_vllm()),
    )
    assert code == 0, (captured, talk)
    assert captured["captured"]["layers"] == list(range(9))
    code, checked, talk = eaglemon(
        tmp_path,
        *("draft", "check", str(MODELS / "draft-low-mid-high"), "--hidden", str(hidden)),
        *("--target", str(MODELS / "target"), "--hs", "2,4,5", "--no-search", "--threads", "1"),
    )
    assert code == 0, (checked, talk)
    assert checked["checks"][0]["steps"][0]["accuracy"] > 0.6
    assert checked["checks"][0]["notes"] == []
