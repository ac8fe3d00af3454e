"""What is odd within a draft's files, and said in words: NaN, RoPE settings, JSON, devices."""

import math
import re
from pathlib import Path

import pytest

from eaglemon.draft.checkpoint import open_checkpoint, read_json
from eaglemon.draft.elsewhere import hint_for
from eaglemon.draft.examine import examine
from eaglemon.draft.finite import scan
from eaglemon.draft.hidden import read_records
from eaglemon.draft.inspect import inspect
from eaglemon.draft.model import load_draft
from eaglemon.draft.prompts import read_prompts
from eaglemon.draft.rope import rope_table
from eaglemon.draft.store import save_tensors
from eaglemon.draft.torch_lib import require_device, torch
from eaglemon.errors import ConfigError, UsageError
from tests.draft.conftest import LAYERS, VOCABULARY, H, draft_tensors, write_draft, write_target


def test_weights_that_are_not_finite_are_found(tmp_path: Path) -> None:
    for number, (kind, value) in enumerate(
        (kind, value)
        for kind in (torch.float32, torch.bfloat16, torch.float16)
        for value in (math.nan, math.inf, -math.inf)
    ):
        tensors = {name: t.to(kind) if t.is_floating_point() else t for name, t in sound().items()}
        tensors["fc.weight"][3, 5] = value
        draft = open_checkpoint(write_draft(tmp_path / str(number), tensors))
        found = scan(draft)
        assert [problem.where for problem in found.problems] == ["fc.weight"], (kind, value)
        assert found.told == "all values looked at"


def test_large_finite_values_are_no_fault_and_a_bound_is_told(tmp_path: Path) -> None:
    for number, kind in enumerate((torch.float32, torch.bfloat16, torch.float16)):
        tensors = {name: t.to(kind) if t.is_floating_point() else t for name, t in sound().items()}
        tensors["fc.weight"][0, 0] = torch.finfo(kind).max
        draft = open_checkpoint(write_draft(tmp_path / str(number), tensors))
        assert scan(draft).problems == ()
        assert "looked at for NaN" in scan(draft, most_bytes=100).told


def sound() -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in draft_tensors().items()}


def test_inspect_tells_of_nan_and_of_an_eagle_config_that_is_none(tmp_path: Path) -> None:
    tensors = sound()
    tensors["norm.weight"][0] = math.nan
    view = inspect(write_draft(tmp_path / "draft", tensors, eagle_config=[1, 2]))
    told = {problem.where: problem.message for problem in view.problems}
    assert "not finite" in told["norm.weight"]
    assert "is no JSON object" in told["eagle_config"]
    assert view.looked_at == "all values looked at"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\ufeff{}", "starts with a byte order mark"),
        ('// hi\n{"a": 1}', "JSON has no comments"),
        ('{"a": 1, /* hi */ "b": 2}', "JSON has no comments"),
        ('{"a": 1,}', r"config\.json:1: [^;]*$"),
    ],
)
def test_what_is_no_json_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_json(tmp_path / "config.json")
    assert re.search(message, str(caught.value))


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    for name, text in (("a.jsonl", '{"text": "hello"}'), ("a.txt", "hello")):
        (tmp_path / name).write_text(f"\ufeff{text}\n", encoding="utf-8")
        assert read_prompts(tmp_path / name, 4) == ["hello"]


def test_yarn_takes_the_draft_s_own_length_where_none_is_given() -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    told = {**yarn, "original_max_position_embeddings": 512}
    found, _ = rope_table(yarn, 8, 16, "cpu", max_positions=512)
    assert torch.equal(found, rope_table(told, 8, 16, "cpu")[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_type": "llama3", "factor": 8.0}, "'llama3' has no low_freq_factor"),
        ({"rope_type": "yarn", "factor": "four"}, "factor of the RoPE is 'four'"),
        ({"rope_type": "linear", "factor": -1}, "factor of the RoPE is -1"),
    ],
)
def test_rope_settings_that_lack_or_are_none(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rope_table({"rope_theta": 1e4, **changes}, 8, 16, "cpu")


def test_numbers_that_are_none_are_told(tmp_path: Path) -> None:
    for key in ("rope_theta", "rms_norm_eps"):
        draft = open_checkpoint(write_draft(tmp_path / key, None, **{key: "abc"}))
        with pytest.raises(ConfigError, match=f"{key} is 'abc'"):
            load_draft(draft)


def test_hidden_states_of_nothing(tmp_path: Path) -> None:
    ids = torch.empty(0, 8, dtype=torch.int64)
    file = tmp_path / "none.safetensors"
    save_tensors(file, {"input_ids": ids, "hidden_states": torch.empty(0, 9, 8, H)})
    with pytest.raises(ConfigError, match="it holds no sequence or no layer"):
        list(read_records(file))


def test_nothing_to_check_is_said(tmp_path: Path) -> None:
    tensors = draft_tensors() | {"fc.weight": torch.randn(H, 2 * H)}
    draft, target = write_draft(tmp_path / "draft", tensors), write_target(tmp_path / "target")
    file = tmp_path / "hidden.safetensors"
    ids = torch.randint(0, VOCABULARY, (2, 40))
    save_tensors(file, {"input_ids": ids, "hidden_states": torch.randn(2, LAYERS + 1, 40, H)})
    with pytest.raises(UsageError, match="nothing to check: the draft joins 2 layers"):
        examine(draft, target, file, searching=False)


@pytest.mark.parametrize("device", ["banana", "meta", "cuda:99", ""])
def test_devices_that_are_none(device: str) -> None:
    with pytest.raises(UsageError, match=f"no device {device!r}"):
        require_device(device)


@pytest.mark.parametrize(
    ("last", "own"),
    [
        ("KeyError: 'x'", True),
        ("python3: ValueError: max() arg is an empty sequence", True),
        ("ModuleNotFoundError: No module named 'torch'", False),
        ("this needs Python 3.11 or newer, and python3 is 3.9", False),
        ("torch.OutOfMemoryError: CUDA out of memory", False),
    ],
)
def test_a_python_is_blamed_only_for_what_it_lacks(last: str, *, own: bool) -> None:
    assert (hint_for(last, "take another Python") == "take another Python") is not own
