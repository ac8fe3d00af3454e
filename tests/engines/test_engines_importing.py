"""Command lines read back into profiles."""

import csv
from pathlib import Path

import pytest

from eaglemon.core.problems import errors_among
from eaglemon.core.profiles import Speculation
from eaglemon.engines import engine_named, import_command
from eaglemon.errors import UsageError

CASES = Path(__file__).parents[3] / "shared" / "cases"


def test_sglang_line() -> None:
    profile = import_command(
        "CUDA_VISIBLE_DEVICES=1,2 HF_HOME=/hf python3 -m sglang.launch_server --model m/target "
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path m/draft "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens=4 "
        "--tp 2 --chunked-prefill-size -1 --mem-fraction-static 0.75 --trust-remote-code "
        "--cuda-graph-bs-decode 1 2 4 --host 0.0.0.0 --port 30001 &"
    )
    assert (profile.engine, profile.model, profile.draft) == ("sglang", "m/target", "m/draft")
    assert profile.speculation == Speculation(steps=3, topk=1, draft_tokens=4)
    assert (profile.address, profile.port, profile.gpus) == ("0.0.0.0", 30001, (1, 2))
    assert profile.env == {"HF_HOME": "/hf"}
    assert profile.command == ("python3", "-m", "sglang.launch_server")
    assert profile.flags == {
        "tp": 2,
        "chunked-prefill-size": -1,
        "mem-fraction-static": 0.75,
        "trust-remote-code": True,
        "cuda-graph-bs-decode": (1, 2, 4),
    }
    assert engine_named("sglang").check(profile) == []


def test_vllm_line() -> None:
    profile = import_command(
        "/opt/v/bin/vllm serve m/target --served-model-name tiny --max-model-len 1024 "
        '--speculative-config \'{"method": "eagle3", "model": "m/draft", '
        '"num_speculative_tokens": 3, "attention_backend": "FLASH_ATTN"}\''
    )
    assert (profile.model, profile.draft, profile.port) == ("m/target", "m/draft", 8000)
    assert profile.speculation == Speculation(steps=3, topk=1, draft_tokens=4)
    assert profile.flags == {
        "max-model-len": 1024,
        "speculative-config": {"attention_backend": "FLASH_ATTN"},
    }
    assert engine_named("vllm").check(profile) == []


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_there_and_back(engine: str) -> None:
    line = {
        "sglang": "python3 -m sglang.launch_server --model-path t --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path d --speculative-num-steps 5 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 6 --enable-metrics",
        "vllm": 'vllm serve t --speculative-config \'{"method": "eagle3", "model": "d", '
        '"num_speculative_tokens": 5}\' --max-num-seqs 8',
    }[engine]
    profile = import_command(line)
    again = engine_named(engine).profile_of(engine_named(engine).argv(profile))
    assert again == profile


@pytest.mark.parametrize("line", ["", "vllm bench serve", "nvidia-smi", "vllm serve 'x"])
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(UsageError):
        import_command(line)


@pytest.mark.skipif(
    not CASES.is_dir(), reason="the collection of public logs is not beside this repository"
)
def test_public_command_lines() -> None:
    """Lines that are complete commands: good ones have no error, bad ones are told."""
    with (CASES / "cmdlines.tsv").open(encoding="utf-8") as table:
        rows = list(csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    checked = 0
    for _, line, verdict in rows:
        if "$" in line or "[described]" in line or "as logged" in line or "placeholders" in verdict:
            continue
        profile = import_command(line)
        problems = engine_named(profile.engine).check(profile)
        if verdict.startswith("INVALID"):
            assert problems, line
        else:
            assert errors_among(problems) == (), line
        checked += 1
    assert checked >= 39
