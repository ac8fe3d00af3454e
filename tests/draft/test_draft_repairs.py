"""Repairs beside what else happens to a draft: later edits, leftovers, foreign journals."""

import json
from pathlib import Path
from typing import Any

import pytest

from eaglemon.draft.checkpoint import open_checkpoint
from eaglemon.draft.journal import JOURNAL
from eaglemon.draft.repair import carry_out, plan_permutation, plan_slots, undo
from eaglemon.errors import ConfigError, UsageError
from tests.draft.conftest import write_draft, write_target


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def set_layers(folder: Path, *slots: int, **options: Any) -> tuple[str, ...]:
    return carry_out(plan_slots(folder, slots=slots, engine="vllm", **options))


def test_what_was_changed_after_a_repair_is_kept(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    before = (folder / "config.json").read_bytes()
    set_layers(folder, 0, 2, 4)
    edited = json.loads((folder / "config.json").read_text()) | {"rope_theta": 5e5}
    (folder / "config.json").write_text(json.dumps(edited))
    assert undo(folder).warnings == (
        "config.json was changed after the repair: kept as config.json.undone-1",
    )
    assert (folder / "config.json").read_bytes() == before
    assert json.loads((folder / "config.json.undone-1").read_text()) == edited


def test_new_weights_are_kept(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    weights = folder / "model.safetensors"
    carry_out(plan_permutation(open_checkpoint(folder), (1, 0, 2)))
    new = weights.read_bytes()[:-4] + b"new!"
    weights.write_bytes(new)
    assert undo(folder).warnings
    assert (folder / "model.safetensors.undone-1").read_bytes() == new


def test_an_unchanged_file_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    set_layers(folder, 0, 2, 4)
    assert undo(folder).warnings == ()
    assert names(folder) == {"config.json", "model.safetensors"}


def test_a_leftover_backup_is_in_nobody_s_way(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    (folder / "config.json.before-1").write_text("{}")
    assert set_layers(folder, 0, 2, 4) == ("config.json.before-2",)
    undo(folder)
    assert names(folder) == {"config.json", "config.json.before-1", "model.safetensors"}


def test_a_repair_that_fails_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_draft(tmp_path / "draft")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eaglemon.draft.repair.write_journal", refuse)
    with pytest.raises(ConfigError, match="No space left"):
        set_layers(folder, 0, 2, 4)
    assert names(folder) == {"config.json", "config.json.before-1", "model.safetensors"}
    monkeypatch.undo()
    assert set_layers(folder, 0, 2, 4) == ("config.json.before-2",)


@pytest.mark.parametrize(
    "files",
    [
        [{"name": "../victim", "backup": "config.json.before-1"}],
        [{"name": "..", "backup": "...before-1"}],
        [{"name": "config.json", "backup": "../victim"}],
        [{"name": "config.json", "backup": "model.safetensors"}],
        [{"name": "/etc/hostname", "backup": "/etc/hostname.before-1"}],
        [{"name": 1, "backup": "x"}],
        ["config.json"],
        "config.json",
        None,
    ],
)
def test_a_foreign_journal_moves_nothing(tmp_path: Path, files: object) -> None:
    folder = write_draft(tmp_path / "draft")
    (tmp_path / "victim").write_text("mine")
    (folder / "config.json.before-1").write_text("theirs")
    journal = {"repairs": [{"number": 1, "title": "x", "files": files}]}
    (folder / JOURNAL).write_text(json.dumps(journal))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="damaged"):
        undo(folder)
    with pytest.raises(ConfigError, match="damaged"):
        set_layers(folder, 0, 2, 4)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("content", ["[]", "{}", '{"repairs": {}}', '{"repairs": [1]}', "{", ""])
def test_a_damaged_journal_is_told(tmp_path: Path, content: str) -> None:
    folder = write_draft(tmp_path / "draft")
    (folder / JOURNAL).write_text(content)
    with pytest.raises(ConfigError, match=JOURNAL):
        undo(folder)


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ((2, 2, 4), "names a layer twice"),
        ((0, 2, 4, 5), "names 4 layers, fc of this draft joins 3"),
        ((0,), "names 1 layer, fc of this draft joins 3"),
        ((-1, 2, 4), r"there is no hs\[-1\]"),
        ((2, 4, 9), r"there is no hs\[9\]"),
    ],
)
def test_layers_that_cannot_work_are_refused(
    tmp_path: Path, slots: tuple[int, ...], message: str
) -> None:
    folder = write_draft(tmp_path / "draft")
    with pytest.raises(UsageError, match=message):
        set_layers(folder, *slots, target=write_target(tmp_path / "target"))
    assert names(folder) == {"config.json", "model.safetensors"}


def test_a_release_that_nobody_has_looked_at_is_told(tmp_path: Path) -> None:
    folder, target = write_draft(tmp_path / "draft"), write_target(tmp_path / "target")
    for version, warned in (("9.9.9", True), ("banana", True), ("0.32.0", False)):
        repair = plan_slots(
            folder, slots=(2, 4, 5), engine="vllm", engine_version=version, target=target
        )
        assert any(version in line and "release" in line for line in repair.warnings) is warned
