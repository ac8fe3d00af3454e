"""The main job on the real vLLM on this machine's CPU (``make test-engine``).

Needs an interpreter that has vLLM (``EAGLEMON_VLLM_PYTHON``) and the folder of the tiny target and
drafts (``EAGLEMON_MODELS``, by default ``../shared/models``). Prints the figures it found.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("EAGLEMON_MODELS", ROOT.parent / "shared" / "models")).resolve()
REQUESTS, TOKENS = 8, 192

PROFILE = """
description = "tiny target on a CPU"
engine = "vllm"
model = "{models}/target"
draft = "{draft}"
served_name = "tiny"
python = "{python}"
port = {port}

[speculation]
steps = 5
topk = 1
draft_tokens = 6

[flags]
max-model-len = 1024
max-num-seqs = 8
enforce-eager = true
no-enable-prefix-caching = true
override-generation-config = {{ temperature = 0 }}

[env]
VLLM_CPU_KVCACHE_SPACE = "1"
HF_HUB_OFFLINE = "1"
VLLM_NO_USAGE_STATS = "1"
DO_NOT_TRACK = "1"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration folder with one profile: the draft as it was trained, ids [2, 4, 5]."""
    python = os.environ.get("EAGLEMON_VLLM_PYTHON", "")
    assert python, "set EAGLEMON_VLLM_PYTHON to an interpreter that has vLLM"
    assert MODELS.is_dir(), f"{MODELS} is missing: set EAGLEMON_MODELS"
    draft = tmp_path / "draft"
    shutil.copytree(MODELS / "draft-low-mid-high", draft, copy_function=shutil.copyfile)
    settings = json.loads((draft / "config.json").read_text())
    settings["eagle_aux_hidden_state_layer_ids"] = [2, 4, 5]
    (draft / "config.json").write_text(json.dumps(settings))
    port = free_port()
    profiles = tmp_path / "config" / "eaglemon" / "profiles"
    profiles.mkdir(parents=True)
    text = PROFILE.format(models=MODELS, draft=draft, python=python, port=port)
    (profiles / "tiny.toml").write_text(text)
    return tmp_path


def eaglemon(
    config: Path, *words: str, timeout_s: float = 400.0
) -> tuple[int, dict[str, Any], str]:
    env = {
        **os.environ,
        "XDG_CONFIG_HOME": str(config / "config"),
        "XDG_STATE_HOME": str(config / "state"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "eaglemon", *words, "--json"],
        env=env,
        cwd=config,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def processes_of(pattern: str) -> list[str]:
    found = subprocess.run(["pgrep", "-af", pattern], capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if "pgrep" not in line]


def test_launch_probe_and_kill(config: Path) -> None:
    code, launched, talk = eaglemon(config, "launch", "tiny", "--host", "local", "--wait")
    assert code == 0, (launched, talk)
    server = launched["server"]
    try:
        assert server["state"] == "ready"
        seen = {p["phase"] for p in server["phases"] if p["state"] == "done"}
        assert {"spawn", "import", "load-target", "load-draft", "kv-cache", "http-open"} <= seen
        before = counters(server["port"])
        code, probed, talk = eaglemon(
            config,
            "probe",
            server["id"],
            "--requests",
            str(REQUESTS),
            "--max-tokens",
            str(TOKENS),
            "--warmup",
            "0",
        )
        assert code == 0, (probed, talk)
        after = counters(server["port"])
        with others(server["port"]):
            code, disturbed, talk = eaglemon(
                config,
                *("probe", f"http://127.0.0.1:{server['port']}", "--concurrency", "1,2"),
                *("--requests", "4", "--max-tokens", "64", "--warmup", "0"),
            )
        assert code == 0, (disturbed, talk)
    finally:
        code, killed, talk = eaglemon(config, "kill", server["id"], "--yes")
    drafts = after["num_drafts"] - before["num_drafts"]
    accepted = after["num_accepted_tokens"] - before["num_accepted_tokens"]
    truth = 1 + accepted / drafts
    figures = probed["probe"]["figures"]
    assert figures["ok"] == REQUESTS
    assert figures["accept_length"] == pytest.approx(truth, rel=0.01)
    shares = [(after[str(i)] - before[str(i)]) / drafts for i in range(5)]
    assert figures["per_position"] == pytest.approx(shares, rel=0.01)
    assert probed["probe"]["foreign_tokens"] <= 8
    for level in disturbed["probes"]:
        assert level["foreign_tokens"] > 20
        assert any("for others during the probe" in note for note in level["notes"])
    assert figures["total_tok_s"] > 0
    assert code == 0, (killed, talk)
    assert killed["server"]["state"] == "stopped"
    assert killed["server"]["stop"]["processes_left"] == 0
    assert processes_of(str(config)) == []
    print(
        f"\nready after {server['ready_at'] - server['launched_at']:.1f} s; "
        f"accept length {figures['accept_length']:.3f} (counters: {truth:.3f}); "
        f"by position {figures['per_position']} (counters: {shares}); "
        f"for others: {[level['foreign_tokens'] for level in disturbed['probes']]} tokens; "
        f"{figures['total_tok_s']:.0f} tok/s; stop: {'; '.join(killed['server']['stop']['steps'])}"
    )


def counters(port: int) -> dict[str, float]:
    """Read the engine's own counters with no code of ours."""
    text = subprocess.run(
        ["curl", "-s", f"http://127.0.0.1:{port}/metrics"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.findall(
        r"^vllm:spec_decode_(num_drafts|num_accepted_tokens)_total\{.*\} (\S+)", text, re.M
    )
    found += re.findall(
        r"^vllm:spec_decode_num_accepted_tokens_per_pos_total\{.*position=\"(\d)\".*\} (\S+)",
        text,
        re.M,
    )
    return {name: float(value) for name, value in found}


@contextlib.contextmanager
def others(port: int) -> Iterator[None]:
    """Other people's requests, one after the other, for as long as the block lasts."""
    body = json.dumps({"model": "tiny", "prompt": "Once", "max_tokens": 64, "ignore_eos": True})
    ask = f"curl -s -o /dev/null http://127.0.0.1:{port}/v1/completions -d '{body}'"
    ask += " -H 'Content-Type: application/json'"
    loop = subprocess.Popen(["sh", "-c", f"while {ask}; do :; done"])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()
