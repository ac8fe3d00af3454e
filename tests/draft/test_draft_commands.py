"""``eaglemon draft`` as a person and a script use it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eaglemon.cli import main
from tests.draft.conftest import copy_model, write_draft, write_target

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> tuple[int, str, str]:
        code = main.run(["draft", *(str(word) for word in words)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def document(out: str) -> dict[str, Any]:
    content = json.loads(out)
    assert isinstance(content, dict)
    assert content["command"] == "draft"
    return content


def test_inspect(run: Run, tmp_path: Path) -> None:
    draft, target = write_draft(tmp_path / "draft"), write_target(tmp_path / "target")
    code, out, err = run("inspect", draft, "--target", target)
    assert (code, err) == (0, "")
    assert "vLLM 0.32 V1 model runner  [1, 3, 4]" in out
    view = document(run("inspect", draft, "--target", target, "--json")[1])["inspect"]
    assert view["captured"] == 3
    code, _, err = run("inspect", write_draft(tmp_path / "odd", draft_vocab_size=39))
    assert code == 1
    assert "eaglemon: error: d2t: has 40 entries for draft_vocab_size 39" in err


def test_failures_are_one_line(run: Run, tmp_path: Path) -> None:
    code, out, err = run("inspect", tmp_path / "none")
    assert (code, out) == (2, "")
    assert err.startswith("eaglemon: ")
    assert "config.json: no such file" in err
    assert err.count("\n") == 1


def test_set_layers_shows_then_writes_then_undoes(run: Run, tmp_path: Path) -> None:
    draft, target = write_draft(tmp_path / "draft"), write_target(tmp_path / "target")
    words = ("set-layers", draft, "--hs", "0,2,4", "--engine", "vllm", "--target", target)
    before = (draft / "config.json").read_bytes()
    code, out, err = run(*words)
    assert code == 0
    assert '+  "eagle_aux_hidden_state_layer_ids": [' in out
    assert "nothing was written: pass --yes" in err
    assert (draft / "config.json").read_bytes() == before
    content = document(run(*words, "--yes", "--json")[1])
    assert content["written"] is True
    assert json.loads((draft / "config.json").read_text())["eagle_aux_hidden_state_layer_ids"] == [
        0,
        2,
        4,
    ]
    assert run(*words, "--yes")[1] == "nothing to change\n"
    assert run("undo", draft)[0] == 0
    assert (draft / "config.json").read_bytes() == before
    assert run("undo", draft)[0] == 2


def test_lists_that_are_none_show_what_is_asked_for(run: Run, tmp_path: Path) -> None:
    assert "write 2,0,1" in run("repair", tmp_path, "--permute", "x")[2]
    assert "write 0,2,4" in run("set-layers", tmp_path, "--hs", "x", "--engine", "vllm")[2]


def test_undo_says_what_it_kept(run: Run, tmp_path: Path) -> None:
    draft = write_draft(tmp_path / "draft")
    assert run("repair", draft, "--permute", "1,0,2", "--yes")[0] == 0
    with (draft / "model.safetensors").open("ab") as file:
        file.write(b"later")
    code, out, err = run("undo", draft, "--json")
    assert code == 0
    assert document(out)["warnings"] == [
        "model.safetensors was changed after the repair: kept as model.safetensors.undone-1"
    ]
    assert "kept as model.safetensors.undone-1" in err


def test_diagnose_warns_of_a_release_that_nobody_has_looked_at(run: Run, tmp_path: Path) -> None:
    draft, target = write_draft(tmp_path / "draft"), write_target(tmp_path / "target")
    words = ("diagnose", "odd", "--draft", draft, "--target", target)
    profiles = tmp_path / "XDG_CONFIG_HOME" / "eaglemon" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "odd.toml").write_text('engine = "vllm"\nmodel = "/none"\ndraft = "/none"\n')
    _, _, err = run(*words, "--engine-version", "9.9.9")
    assert "vLLM 9.9.9 is no known release: the rules of 0.32 are used" in err


def test_set_layers_warns_where_the_version_crashes(run: Run, tmp_path: Path) -> None:
    draft = write_draft(tmp_path / "draft")
    _, _, err = run(
        *("set-layers", draft, "--hs", "0,2,4", "--engine", "sglang"),
        *("--engine-version", "0.5.16"),
    )
    assert "no --target: the rule for targets of type 'llama' is used" in err
    assert "SGLang 0.5.16 crashes: TypeError" in err


def test_repair_permutes(run: Run, tmp_path: Path) -> None:
    draft = write_draft(tmp_path / "draft")
    code, out, _ = run("repair", draft, "--permute", "2,0,1", "--yes")
    assert code == 0
    assert "column blocks 0 1 2 -> 2 0 1" in out
    assert run("repair", draft, "--permute", "2,0")[0] == 2
    assert run("repair", draft, "--permute", "a,b")[0] == 2


def test_check_names_the_layers_and_exits_by_the_configuration(
    run: Run, models: Path, tmp_path: Path
) -> None:
    samples = ("--target", models / "target", "--hidden", models / "samples.safetensors")
    code, out, _ = run("check", models / "draft-low-mid-high", *samples)
    assert code == 0
    assert "trained on [hs[2], hs[4], hs[5]]\nahead of other layers by" in out
    wrong = copy_model(models / "draft-embed-low-mid", tmp_path / "draft")
    config = json.loads((wrong / "config.json").read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [1, 3, 4]
    (wrong / "config.json").write_text(json.dumps(config))
    code, out, _ = run("check", wrong, *samples, "--json")
    assert code == 1
    assert document(out)["search"]["slots"] == [0, 2, 4]


def test_diagnose_a_profile_names_the_wiring_and_its_fix(
    run: Run, models: Path, tmp_path: Path
) -> None:
    """The founding story without a server: the configuration against the offline check."""
    draft = copy_model(models / "draft-embed-low-mid", tmp_path / "draft")
    config = json.loads((draft / "config.json").read_text())
    config["eagle_aux_hidden_state_layer_ids"] = [2, 4, 5]
    (draft / "config.json").write_text(json.dumps(config))
    profiles = tmp_path / "XDG_CONFIG_HOME" / "eaglemon" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "tiny.toml").write_text(
        f'engine = "vllm"\nmodel = "{models}/target"\ndraft = "{draft}"\nport = 8001\n'
        "[speculation]\nsteps = 5\n"
    )
    words = ("diagnose", "tiny", "--hidden", models / "samples.safetensors")
    code, out, _ = run(*words)
    assert code == 1
    assert "wiring: layers wired as [2, 4, 5] but trained on [0, 2, 4]" in out
    (fix,) = [line for line in out.splitlines() if "set-layers" in line]
    command = fix.removeprefix("fix: eaglemon draft ").partition(" (writes")[0].split()
    assert run(*command, "--yes")[0] == 0
    code, out, _ = run(*words, "--json")
    assert code == 0
    diagnosis = document(out)["diagnosis"]
    assert diagnosis["verdict"] == "fine"
    assert diagnosis["captured"] == diagnosis["trained"] == [0, 2, 4]


def test_diagnose_tells_what_a_capture_costs_before_it_captures(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is named by its repository, and found where huggingface_hub keeps it."""
    draft = write_draft(tmp_path / "draft")
    cached = tmp_path / "hub" / "models--owner--tiny"
    write_target(cached / "snapshots" / "c0ffee")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("c0ffee")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    profiles = tmp_path / "XDG_CONFIG_HOME" / "eaglemon" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "tiny.toml").write_text(
        f'engine = "vllm"\nmodel = "owner/tiny"\ndraft = "{draft}"\nport = 8001\n'
        "[speculation]\nsteps = 5\n"
    )
    code, out, err = run("diagnose", "tiny", "--capture")
    assert (code, out) == (130, "")
    assert "capturing loads the target (" in err
    assert "continues 16 prompts by 192 tokens" in err
    assert "nothing was captured: pass --yes" in err
    code, _, err = run("diagnose", "tiny", "--capture", "--hidden", "some")
    assert (code, err.count("\n")) == (2, 1)
    code, out, _ = run("diagnose", "tiny", "--json")
    assert document(out)["inspect"]["target_layers"] == 8


def test_capture_without_transformers_says_so(run: Run, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"text": "hello"}\n')
    words = ("--target", write_target(tmp_path / "target"), "-o", tmp_path / "h.safetensors")
    code, _, err = run("capture", *words, "--prompts", prompts)
    assert code == 2
    assert "transformers is not installed" in err
    prompts.write_text('{"text": "hello"}\nnope\n')
    code, _, err = run("capture", *words, "--prompts", prompts)
    assert code == 2
    assert "prompts.jsonl:2: no prompt" in err


def test_a_check_in_another_python_gives_the_same(run: Run, models: Path) -> None:
    """The code goes along as a bundle; here the other Python is this one."""
    import sys

    words = (
        *("check", models / "draft-low-mid-high", "--target", models / "target"),
        *("--hidden", models / "samples.safetensors", "--no-search", "--hs", "2,4,5"),
        *("--threads", "1", "--json"),
    )
    here = document(run(*words)[1])["checks"][0]
    there = document(run(*words, "--python", sys.executable)[1])["checks"][0]
    assert here["steps"] == there["steps"]
    code, _, err = run(*words, "--python", "/nowhere/python")
    assert code == 2
    assert "/nowhere/python: cannot be run" in err
