from pathlib import Path

import pytest

from eaglemon.core.probe import Prompt
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io.workloads import load_workload, workload_names


@pytest.mark.parametrize("name", ["chat", "code", "maths"])
def test_shipped_workloads_are_varied(name: str) -> None:
    prompts = load_workload(name)
    assert len(prompts) >= 40
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    assert len({prompt.text[:24] for prompt in prompts}) > len(prompts) * 0.9


def test_names_are_listed() -> None:
    assert workload_names() == ("chat", "code", "maths")


def test_own_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"id": "a", "text": "x\u2028y"}\n\n{"id": "b", "text": "z"}\n', "utf-8")
    assert load_workload(str(path)) == (
        Prompt(id="a", text="x\u2028y"),
        Prompt(id="b", text="z"),
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"id": "a"}\n', "own.jsonl:1: is no prompt"),
        ('{"id": "a", "text": "x"}\n{\n', "own.jsonl:2: is no prompt"),
        ('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n', "own.jsonl:2: the id 'a'"),
        ('{"id": "a", "text": " "}\n', "own.jsonl:1: the prompt 'a' has no text"),
        ("\n", "has no prompt"),
    ],
)
def test_broken_files_name_the_line(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_workload(str(path))
    assert part in str(caught.value)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n', encoding="utf-8-sig")
    assert load_workload(str(path)) == (Prompt(id="a", text="x"),)


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown workload") as caught:
        load_workload("prose")
    assert "chat, code, maths, random, or a file that ends in .jsonl" in caught.value.hint
    with pytest.raises(UsageError, match="did you mean 'maths'"):
        load_workload("math")
    with pytest.raises(UsageError, match="no such file"):
        load_workload(str(tmp_path / "none.jsonl"))
