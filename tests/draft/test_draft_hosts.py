"""``eaglemon draft`` on files of a host: this machine as one, and the simulated one over SSH."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from eaglemon.core.draft_views import CheckStage
from eaglemon.draft.elsewhere import PROGRAM, program_input, stage_of
from eaglemon.sim.host import SimHost
from tests.cli.test_cli_simulated import eaglemon
from tests.draft.conftest import copy_model, write_draft, write_target

Run = Callable[..., Coroutine[Any, Any, tuple[str, str]]]
KEY = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture(params=["local", "gpu-a"])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, Run]]:
    """A host by name, and ``eaglemon draft`` with a configuration that knows it."""
    home, config = tmp_path / "home", tmp_path / "over.toml"
    home.mkdir()

    async def run(*words: str, code: int = 0) -> tuple[str, str]:
        return await eaglemon("--config", str(config), "draft", *words, home=home, code=code)

    if request.param == "local":
        config.write_text('[hosts.local]\ntransport = "local"\n')
        yield "local", run
        return
    async with SimHost(name="gpu-a") as spec:
        keys = {
            "address": spec.address,
            "known_hosts": spec.known_hosts,
            "identity": spec.identity,
            "user": spec.user,
            "ssh_config": "",
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        config.write_text("\n".join(["[hosts.gpu-a]", *lines, f"port = {spec.port}", ""]))
        yield "gpu-a", run


async def test_layers_are_looked_at_set_and_undone_there(
    host: tuple[str, Run], tmp_path: Path
) -> None:
    name, run = host
    draft, target = write_draft(tmp_path / "draft"), write_target(tmp_path / "target")
    before = (draft / "config.json").read_bytes()
    there, beside = f"{name}:{draft}", f"{name}:{target}"

    out, _ = await run("inspect", there, "--target", beside)
    assert "vLLM 0.32 V1 model runner  [1, 3, 4]" in out

    words = ("set-layers", there, "--hs", "0,2,4", "--engine", "vllm", "--target", beside)
    out, err = await run(*words)
    assert f'+  "{KEY}": [' in out
    assert "nothing was written: pass --yes" in err
    assert (draft / "config.json").read_bytes() == before

    _, err = await run(*words, "--yes")
    assert f"undo with: eaglemon draft undo {there}" in err
    assert json.loads((draft / "config.json").read_text())[KEY] == [0, 2, 4]
    assert (draft / "config.json.before-1").read_bytes() == before
    out, _ = await run(*words, "--yes")
    assert out == "nothing to change\n"

    out, _ = await run("undo", str(draft), "--host", name)
    assert out == f"undone: {KEY} = [0, 2, 4]\n"
    assert (draft / "config.json").read_bytes() == before
    # Nothing temporary stays behind.
    assert {path.name for path in draft.iterdir()} <= {
        "config.json",
        "model.safetensors",
        ".eaglemon-repairs.json",
    }


async def test_weights_are_reordered_there(host: tuple[str, Run], tmp_path: Path) -> None:
    name, run = host
    draft, same = write_draft(tmp_path / "draft"), write_draft(tmp_path / "same")
    await run("repair", f"{name}:{draft}", "--permute", "2,0,1", "--yes")
    await run("repair", str(same), "--permute", "2,0,1", "--yes")
    weights = "model.safetensors"
    assert (draft / weights).read_bytes() == (same / weights).read_bytes()
    assert (draft / f"{weights}.before-1").read_bytes() != (draft / weights).read_bytes()


async def test_a_check_there_is_the_check_here(
    host: tuple[str, Run], models: Path, tmp_path: Path
) -> None:
    name, run = host
    wrong = copy_model(models / "draft-embed-low-mid", tmp_path / "draft")
    config = json.loads((wrong / "config.json").read_text())
    config["eagle_config"][KEY] = [1, 3, 4]
    (wrong / "config.json").write_text(json.dumps(config))
    counted = ("--threads", "1", "--json")

    async def checked(prefix: str, *more: str, code: int) -> dict[str, Any]:
        out, _ = await run(
            *("check", f"{prefix}{wrong}", "--target", f"{prefix}{models}/target"),
            *("--hidden", f"{prefix}{models}/samples.safetensors", *counted, *more),
            code=code,
        )
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    profiles = tmp_path / "home" / "eaglemon" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "mine.toml").write_text(
        f'engine = "vllm"\nmodel = "/m"\nport = 8000\npython = "{sys.executable}"\n'
    )
    there = await checked(f"{name}:", "--profile", "mine", code=1)
    here = await checked("", "--no-search", "--hs", "0,2,4", code=0)
    assert there["search"]["slots"] == [0, 2, 4]
    assert there["checks"][0]["steps"] == here["checks"][0]["steps"]


async def test_what_cannot_be_done_is_told_in_a_line(host: tuple[str, Run], tmp_path: Path) -> None:
    name, run = host
    draft = write_draft(tmp_path / "draft")

    async def refused(*words: str, code: int = 2) -> str:
        _, err = await run(*words, code=code)
        assert err.startswith("eaglemon: ")
        assert err.count("\n") == 1
        return err

    there = f"{name}:{draft}"
    none = await refused("inspect", f"{name}:{tmp_path}/none")
    assert f"{name}: " in none
    assert "no such file" in none
    assert "no repair to undo" in await refused("undo", there)
    apart = await refused("inspect", there, "--target", str(tmp_path))
    assert f"the paths are on {name}, this machine" in apart
    assert "is no path of" in await refused("inspect", "draft", "--host", name)
    lacking = await refused("inspect", there, "--python", "/nowhere/python", code=1)
    assert f"{name}: cannot start /nowhere/python" in lacking
    assert "--python" in lacking
    if os.geteuid() != 0:  # Root may write anywhere.
        draft.chmod(0o500)
        words = ("set-layers", there, "--hs", "0,2,4", "--engine", "vllm", "--yes")
        assert "Permission denied" in (await run(*words, code=2))[1]
        draft.chmod(0o700)


async def test_a_read_only_call_writes_nothing(tmp_path: Path) -> None:
    draft = write_draft(tmp_path / "draft")
    before = {path.name: path.read_bytes() for path in draft.iterdir()}
    _, err = await eaglemon(
        *("--read-only", "draft", "set-layers", str(draft), "--hs", "0,2,4"),
        *("--engine", "vllm", "--yes"),
        home=tmp_path,
        code=2,
    )
    assert "read-only" in err
    assert {path.name: path.read_bytes() for path in draft.iterdir()} == before


def test_a_check_tells_its_stages_before_its_answer(tmp_path: Path) -> None:
    draft, target = write_draft(tmp_path / "draft"), write_target(tmp_path / "target")
    request = {
        "do": "diagnose",
        "folder": str(draft),
        "target": str(target),
        "engine": "vllm",
        "prompts": ["hello"],
    }
    given = json.dumps(json.dumps(program_input(request)))
    program = f"EAGLEMON_INPUT = {given}\n".encode() + PROGRAM
    done = subprocess.run([sys.executable, "-"], input=program, capture_output=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert stage_of(told[0]) == CheckStage(doing="loading the target")
    assert stage_of(told[-1]) is None
    # The target of this test is no model that could be run, with transformers or without.
    assert "error" in told[-1]
