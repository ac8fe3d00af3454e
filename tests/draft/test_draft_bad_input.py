"""Broken models and hidden states as a person meets them: one line, exit code 2, no traceback."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from eaglemon.draft.store import save_tensors
from eaglemon.draft.torch_lib import torch
from tests.draft.conftest import LAYERS, VOCABULARY, H, draft_tensors, write_draft, write_target
from tests.draft.test_draft_commands import Run, run

__all__ = ["run"]

Tensors = dict[str, torch.Tensor]


def states(**changes: torch.Tensor) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (1, 40), generator=generator)
    hidden = torch.randn(1, LAYERS + 1, 40, H, generator=generator)
    return {"input_ids": ids, "hidden_states": hidden, **changes}


def without(name: str) -> Tensors:
    return {key: value for key, value in states().items() if key != name}


HIDDEN: list[tuple[Tensors, str]] = [
    (without("input_ids"), "hidden.safetensors: no tensor input_ids"),
    (states(input_ids=torch.full((1, 40), -3)), "the text has the token -3"),
    (states(input_ids=torch.full((1, 40), VOCABULARY)), f"too small for token {VOCABULARY}"),
    (states(loss_mask=torch.zeros(1, 40, dtype=torch.bool)), "loss_mask marks no position"),
    (states(hidden_states=torch.zeros(1, 9, 40, H // 2)), "the draft joins layers of 32"),
    (states(hidden_states=torch.full((1, 9, 40, H), torch.nan)), "values that are not finite"),
]


@pytest.mark.parametrize(("tensors", "message"), HIDDEN, ids=[message for _, message in HIDDEN])
def test_hidden_states_are_refused_in_a_line(
    run: Run, tmp_path: Path, tensors: Tensors, message: str
) -> None:
    draft, target = write_draft(tmp_path / "draft"), write_target(tmp_path / "target")
    save_tensors(tmp_path / "hidden.safetensors", tensors)
    words = ("--target", target, "--hidden", tmp_path / "hidden.safetensors", "--threads", "1")
    code, out, err = run("check", draft, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("eaglemon: ")
    assert message in err


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"hidden_size": null}')


def no_head(folder: Path) -> None:
    save_tensors(
        folder / "model.safetensors",
        {name: value for name, value in draft_tensors().items() if name != "lm_head.weight"},
    )


def cut_header(folder: Path) -> None:
    weights = folder / "model.safetensors"
    # A length of 0x80 in its first byte looks like a pickle.
    weights.write_bytes(b"\x80" + weights.read_bytes()[1:50])


def odd_rope(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_scaling": {"type": "odd"}}))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (broken_config, "draft/config.json: no hidden_size"),
        (no_head, "no lm_head.weight, and the target's has another vocabulary"),
        (cut_header, "model.safetensors: not a safetensors file"),
        (odd_rope, "the draft's rope_type 'odd' is not supported"),
    ],
)
def test_drafts_are_refused_in_a_line(
    run: Run, tmp_path: Path, broken: Callable[[Path], None], message: str
) -> None:
    draft, target = write_draft(tmp_path / "draft"), write_target(tmp_path / "target")
    broken(draft)
    save_tensors(tmp_path / "hidden.safetensors", states())
    words = ("--target", target, "--hidden", tmp_path / "hidden.safetensors", "--threads", "1")
    code, out, err = run("check", draft, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_ids_that_are_no_list_are_told(run: Run, tmp_path: Path) -> None:
    odd = {"eagle_aux_hidden_state_layer_ids": ["a", 2]}
    draft = write_draft(tmp_path / "draft", eagle_config=odd, architectures=[])
    code, out, err = run("inspect", draft)
    assert code == 1
    assert "unknown, llama attention" in out
    assert "eagle_config.eagle_aux_hidden_state_layer_ids: is no list of whole numbers" in err


def test_a_d2t_that_leads_nowhere_is_told(run: Run, tmp_path: Path) -> None:
    tensors = draft_tensors()
    tensors["d2t"] = tensors["d2t"] + 5000
    draft, target = write_draft(tmp_path / "draft", tensors), write_target(tmp_path / "target")
    save_tensors(tmp_path / "hidden.safetensors", states())
    words = ("--target", target, "--hidden", tmp_path / "hidden.safetensors", "--hs", "2,4,5")
    _, out, _ = run("check", draft, *words, "--no-search", "--threads", "1")
    assert "note: d2t maps 40 of 40 draft ids outside of the target's 48" in out
