"""Faults within a draft's own files, which a server repeats: labels out of place, another RoPE.

What is expected is what the unharmed draft chooses, so that it is right everywhere, and a harmed
copy is asked what is wrong.
"""

from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.draft_verdict import DraftReport, DraftVerdict
from eaglemon.core.draft_views import TARGET_ROPE
from eaglemon.draft.check import target_ids
from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.diagnose import diagnose
from eaglemon.draft.model import Chain, decode, join, load_draft, logits
from eaglemon.draft.store import save_tensors
from eaglemon.draft.torch_lib import torch
from eaglemon.draft.weights import read_tensor
from tests.draft.conftest import (
    DRAFT_VOCABULARY,
    LAYERS,
    VOCABULARY,
    H,
    draft_tensors,
    write_draft,
    write_target,
)

SEQUENCES, LENGTH = 4, 128
SLOTS = (2, 4, 5)


@pytest.fixture(scope="module")
def foreseen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and hidden states over a text of which the sound draft foresees each token."""
    folder = tmp_path_factory.mktemp("foreseen")
    target = write_target(folder / "target")
    weights = open_checkpoint(target)
    model = load_draft(open_checkpoint(write_draft(folder / "sound")))
    embedding = read_tensor(weights, "model.embed_tokens.weight")
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(SEQUENCES, LAYERS + 1, LENGTH, H, generator=generator)
    text = torch.randint(VOCABULARY, (SEQUENCES, LENGTH), generator=generator)
    with torch.inference_mode():
        hidden = join(model, [states[:, slot] for slot in SLOTS])
        for at in range(LENGTH - 2):
            fed = embedding[text[:, 1 : at + 2]]
            scores = logits(model, decode(model, fed, hidden[:, : at + 1], Chain()))
            text[:, at + 2] = target_ids(model)[scores[:, -1].argmax(-1)]
    saved = {
        "input_ids": text,
        "hidden_states": states,
        "target_argmax": torch.roll(text, -1, dims=1),
    }
    save_tensors(folder / "hidden.safetensors", saved)
    return target, folder / "hidden.safetensors"


def judge(
    folder: Path, foreseen: tuple[Path, Path], tensors: dict[str, torch.Tensor], **changes: Any
) -> DraftReport:
    target, hidden = foreseen
    changes.setdefault("eagle_aux_hidden_state_layer_ids", list(SLOTS))
    draft = write_draft(folder / "draft", tensors, **changes)
    return diagnose(
        draft,
        target,
        engine="vllm",
        engine_version="0.32.0",
        algorithm="EAGLE3",
        hidden=hidden,
        steps=2,
    )


def test_a_sound_draft_is_not_suspected(tmp_path: Path, foreseen: tuple[Path, Path]) -> None:
    report = judge(tmp_path, foreseen, draft_tensors())
    # Its second step is a random draft's, so that norm_output may fit by chance.
    assert report.diagnosis.verdict in {DraftVerdict.FINE, DraftVerdict.NORMS}
    assert report.relabelled is None
    assert report.search is not None
    assert report.search.slots == SLOTS
    assert report.diagnosis.offline[0] > 0.9


def test_rows_of_the_head_out_of_place_are_named(
    tmp_path: Path, foreseen: tuple[Path, Path]
) -> None:
    """No file contradicts another, no layers fit, and yet its rows tell the tokens."""
    tensors = draft_tensors()
    tensors["lm_head.weight"] = torch.roll(tensors["lm_head.weight"], 1, 0)
    report = judge(tmp_path, foreseen, tensors)
    assert report.relabelled is not None
    assert report.relabelled.wiring == ("hs[2]", "hs[4]", "hs[5]")
    assert report.relabelled.relabelled > 0.8
    assert report.relabelled.accuracy < 0.2
    assert report.diagnosis.verdict is DraftVerdict.VOCABULARY
    assert "rows of lm_head and d2t are 1 apart" in report.diagnosis.sentence


def test_target_ids_that_are_mixed_up_are_named(
    tmp_path: Path, foreseen: tuple[Path, Path]
) -> None:
    tensors = draft_tensors()
    places = torch.arange(DRAFT_VOCABULARY)
    ids = tensors["d2t"] + places
    tensors["d2t"] = ids.flip(0) - places
    report = judge(tmp_path, foreseen, tensors)
    assert report.diagnosis.verdict is DraftVerdict.VOCABULARY
    assert report.diagnosis.sentence.endswith("stand for other tokens than its d2t says")


def test_a_draft_that_nothing_makes_fit_is_not_given_other_layers(
    tmp_path: Path, foreseen: tuple[Path, Path]
) -> None:
    """What it chooses from the last token alone is not taken for labels out of place."""
    report = judge(tmp_path, foreseen, draft_tensors(seed=9))
    assert report.relabelled is not None
    assert report.diagnosis.verdict is DraftVerdict.WEAK
    assert "untrained, damaged, or another target's" in report.diagnosis.sentence
    assert not report.diagnosis.certain


def test_a_rope_that_is_not_the_one_it_was_trained_with_is_named(
    tmp_path: Path, foreseen: tuple[Path, Path]
) -> None:
    report = judge(tmp_path, foreseen, draft_tensors(), rope_theta=20.0)
    assert report.search is not None
    assert TARGET_ROPE in report.search.best.hypothesis.flags
    diagnosis = report.diagnosis
    assert diagnosis.verdict is DraftVerdict.CONTEXT
    assert "rope: the draft has" in diagnosis.evidence[0]
    # As the files say, the run is as bad as a server that reads them.
    assert diagnosis.offline[0] > 0.9
    assert diagnosis.offline_as_served[0] < 0.9 * diagnosis.offline[0]


@pytest.mark.parametrize(
    ("changes", "lost"),
    [({"norm_before_fc": True}, None), ({}, "midlayer.hidden_norm.weight")],
    ids=["flag-without-weights", "weights-lost"],
)
def test_norms_that_the_files_lack_are_named(
    tmp_path: Path, foreseen: tuple[Path, Path], changes: dict[str, Any], lost: str | None
) -> None:
    """Such a draft cannot be run as its configuration asks, and says so in place of failing."""
    tensors = {name: value for name, value in draft_tensors().items() if name != lost}
    report = judge(tmp_path, foreseen, tensors, **changes)
    assert report.diagnosis.verdict is DraftVerdict.NORMS
    assert "engines leave it random or at ones" in report.diagnosis.sentence
    assert report.warnings[0].startswith("the draft was not run offline: ")


def test_a_draft_that_cannot_be_run_is_judged_by_what_it_achieved(
    tmp_path: Path, foreseen: tuple[Path, Path]
) -> None:
    tensors = draft_tensors()
    tensors["midlayer.self_attn.kv_a_proj_with_mqa.weight"] = torch.ones(H, H)
    report = judge(tmp_path, foreseen, tensors)
    assert report.diagnosis.verdict is DraftVerdict.UNKNOWN
    assert "multi-head latent attention (MLA)" in report.warnings[0]
