"""Checkpoints and hidden states on disk: both layouts, shards, and everything that is broken."""

import gzip
import json
import pickle
import struct
from pathlib import Path

import pytest
from safetensors.torch import load_file

from eaglemon.draft.checkpoint import open_checkpoint, read_header
from eaglemon.draft.hidden import candidates, read_records
from eaglemon.draft.store import save_tensors
from eaglemon.draft.torch_lib import torch
from eaglemon.draft.weights import read_rows, read_tensor
from eaglemon.errors import ConfigError
from tests.draft.conftest import H, draft_tensors, write_draft


def test_what_is_saved_is_read_by_the_format_s_own_library(tmp_path: Path) -> None:
    tensors = draft_tensors() | {"half": torch.randn(3, 5).bfloat16(), "empty": torch.empty(0, 2)}
    size = save_tensors(tmp_path / "file.safetensors", tensors)
    assert (tmp_path / "file.safetensors").stat().st_size == size
    theirs = load_file(tmp_path / "file.safetensors")
    assert set(theirs) == set(tensors)
    assert all(torch.equal(theirs[name], value) for name, value in tensors.items())
    assert [p.name for p in tmp_path.iterdir()] == ["file.safetensors"]


def test_tensors_and_rows_are_read_as_they_are(tmp_path: Path) -> None:
    draft = open_checkpoint(write_draft(tmp_path / "draft"))
    tensors = draft_tensors()
    assert torch.equal(read_tensor(draft, "fc.weight"), tensors["fc.weight"])
    assert torch.equal(read_tensor(draft, "fc.weight", start=3, stop=5), tensors["fc.weight"][3:5])
    rows = torch.tensor([[4, 1], [4, 0]])
    found = read_rows(draft, "fc.weight", rows, dtype=torch.float32, device="cpu")
    assert torch.equal(found, tensors["fc.weight"][rows])
    assert draft.integers("d2t") == tensors["d2t"].tolist()


def test_only_the_rows_asked_for_are_read(tmp_path: Path) -> None:
    """A sparse file of 64 GB costs what is read of it."""
    rows, width = 1 << 25, 1024
    header = {
        "embed": {"dtype": "BF16", "shape": [rows, width], "data_offsets": [0, rows * width * 2]}
    }
    raw = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + rows * width * 2)
    (tmp_path / "config.json").write_text("{}")
    huge = open_checkpoint(tmp_path)
    last = read_tensor(huge, "embed", start=rows - 1)
    assert last.shape == (1, width)
    assert not last.any()


def test_shards_are_found_by_their_index(tmp_path: Path) -> None:
    tensors = draft_tensors()
    names = sorted(tensors)
    parts = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
    for file, held in parts.items():
        save_tensors(tmp_path / file, {name: tensors[name] for name in held})
    places = {name: file for file, held in parts.items() for name in held}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (tmp_path / "config.json").write_text("{}")
    assert set(open_checkpoint(tmp_path).tensors) == set(tensors)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"the shard b\.safetensors is missing"):
        open_checkpoint(tmp_path)


def test_truncated_files_are_told(tmp_path: Path) -> None:
    path = write_draft(tmp_path / "draft") / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ConfigError, match=r"truncated: .* ends at byte"):
        open_checkpoint(path.parent)


def header_of(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode() + b"    "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a safetensors file"),
        (b"hello world, this is text", "not a safetensors file"),
        (pickle.dumps({"a": 1}) + b" " * 200, "a pickle with the name of a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (struct.pack("<Q", 12) + b"[1, 2, 3, 4]" + b" " * 50, "not a safetensors file"),
        (
            header_of('{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}'),
            "contradicts its shape",
        ),
        (
            header_of('{"a": {"dtype": "F3", "shape": [1], "data_offsets": [0, 4]}}'),
            "unknown type F3",
        ),
    ],
)
def test_foreign_files_are_told(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_header(path)


def test_pickles_need_trust_and_hold_tensors_only(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    torch.save(draft_tensors(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="--trust-pickle"):
        open_checkpoint(tmp_path)
    trusted = open_checkpoint(tmp_path, trust_pickle=True)
    assert torch.equal(read_tensor(trusted, "fc.weight"), draft_tensors()["fc.weight"])
    assert torch.equal(read_tensor(trusted, "d2t", start=2, stop=4), draft_tensors()["d2t"][2:4])


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("__import__('pathlib').Path('owned').touch()",)


def test_a_trusted_pickle_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="holds more than tensors"):
        open_checkpoint(tmp_path, trust_pickle=True)
    assert not (tmp_path / "owned").exists()


def test_missing_and_broken_configurations_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: no such file"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"a": \n nope}')
    with pytest.raises(ConfigError, match=r"config\.json:2: "):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"no \*\.safetensors"):
        open_checkpoint(tmp_path)


def plain_file(path: Path, layers: int = 9, length: int = 20) -> dict[str, torch.Tensor]:
    tensors = {
        "input_ids": torch.arange(2 * length).view(2, length) % 48,
        "hidden_states": torch.randn(2, layers, length, H).bfloat16(),
    }
    save_tensors(path, tensors)
    return tensors


def test_plain_files(tmp_path: Path) -> None:
    tensors = plain_file(tmp_path / "h.safetensors")
    first, second = read_records(tmp_path / "h.safetensors")
    assert torch.equal(second.ids, tensors["input_ids"][1])
    assert list(first.features) == [f"hs[{i}]" for i in range(9)]
    assert torch.equal(second.features["hs[3]"], tensors["hidden_states"][1, 3])
    assert first.mask.all()
    few = read_records(tmp_path / "h.safetensors", max_tokens=26)
    assert [record.ids.numel() for record in few] == [20, 6]


def test_padded_files_with_some_layers(tmp_path: Path) -> None:
    tensors = plain_file(tmp_path / "h.safetensors", layers=3)
    tensors |= {
        "layers": torch.tensor([0, 2, 8]),
        "lengths": torch.tensor([20, 7]),
        "loss_mask": torch.arange(40).view(2, 20) % 2 == 0,
    }
    save_tensors(tmp_path / "h.safetensors", tensors)
    _, second = read_records(tmp_path / "h.safetensors")
    assert list(second.features) == ["hs[0]", "hs[2]", "hs[8]"]
    assert second.ids.numel() == 7
    assert second.mask.tolist() == [True, False] * 3 + [True]


def test_deep_targets_are_read_at_the_likely_layers() -> None:
    assert candidates(9) == list(range(9))
    likely = candidates(62, keep={40})
    assert {0, 2, 3, 29, 30, 31, 40, 58, 59, 61} <= set(likely)
    assert len(likely) < 20


def test_speculators_files(tmp_path: Path) -> None:
    states = torch.randn(12, 4, H).bfloat16()
    for number in (10, 9):
        tensors = {"token_ids": torch.full((12,), number), "hidden_states": states}
        save_tensors(tmp_path / f"hs_{number}.safetensors", tensors)
    records = read_records(tmp_path)
    assert [int(record.ids[0]) for record in records] == [9, 10]
    assert list(records[0].features) == ["aux[0]", "aux[1]", "aux[2]", "last"]
    assert records[0].last is not None
    assert torch.equal(records[0].last, states[:, 3])
    assert records[0].last_normed is False


@pytest.mark.parametrize("packed", [False, True])
def test_specforge_files(tmp_path: Path, *, packed: bool) -> None:
    joined = torch.randn(1, 12, 3 * H).bfloat16()
    content = {
        "input_ids": torch.arange(12),
        "loss_mask": torch.arange(12) > 3,
        "hidden_state": torch.randn(1, 12, H).bfloat16(),
        "aux_hidden_state": joined,
    }
    folder = tmp_path / "rows_0-1"
    folder.mkdir()
    path = folder / "data_0.ckpt"
    torch.save(content, path)
    if packed:
        with gzip.open(folder / "data_0.ckpt.gz", "wb") as file:
            file.write(path.read_bytes())
        path.unlink()
    with pytest.raises(ConfigError, match="--trust-pickle"):
        read_records(tmp_path)
    (record,) = read_records(tmp_path, trust_pickle=True)
    assert torch.equal(record.features["aux[1]"], joined[0, :, H : 2 * H])
    assert record.last_normed is True
    assert int(record.mask.sum()) == 8


def test_broken_hidden_states_are_told(tmp_path: Path) -> None:
    path = tmp_path / "h.safetensors"
    with pytest.raises(ConfigError, match="no such file or folder"):
        read_records(path)
    with pytest.raises(ConfigError, match=r"no \*\.safetensors or \*\.ckpt"):
        read_records(tmp_path)
    save_tensors(path, {"input_ids": torch.zeros(1, 8, dtype=torch.int64)})
    with pytest.raises(ConfigError, match="no floating-point tensor hidden_states"):
        read_records(path)
    states = torch.randn(1, 3, 8, H)
    save_tensors(path, {"input_ids": torch.zeros(1, 9, dtype=torch.int64), "hidden_states": states})
    with pytest.raises(ConfigError, match=r"input_ids is \[1, 9\]"):
        read_records(path)
    save_tensors(path, {"input_ids": torch.zeros(8, dtype=torch.int64), "hidden_states": states[0]})
    with pytest.raises(ConfigError, match=r"expected \[B, L\+1, T, H\]"):
        read_records(path)
    states[0, 1, 2, 3] = float("inf")
    save_tensors(path, {"input_ids": torch.zeros(1, 8, dtype=torch.int64), "hidden_states": states})
    with pytest.raises(ConfigError, match="not finite"):
        read_records(path)
    save_tensors(
        path, {"input_ids": torch.zeros(1, 2, dtype=torch.int64), "hidden_states": states[:, :, :2]}
    )
    with pytest.raises(ConfigError, match="at least 4 tokens"):
        read_records(path)
