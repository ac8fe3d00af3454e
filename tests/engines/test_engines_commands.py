"""Command lines and what is wrong with profiles."""

import json
from dataclasses import replace
from typing import Any

import pytest

from eaglemon.core.problems import Severity
from eaglemon.core.profiles import Profile, Speculation
from eaglemon.core.views import HealthVerdict
from eaglemon.engines import ENGINES, engine_named, engine_of
from eaglemon.errors import ConfigError

EAGLE3 = Speculation(steps=5, topk=1, draft_tokens=6)


def _profile(engine: str = "sglang", /, **changes: Any) -> Profile:
    base = Profile(
        name="p",
        engine=engine,
        model="/models/target",
        draft="/models/draft",
        speculation=EAGLE3,
        port=30000,
        gpus=(2, 3),
        served_name="tiny",
        flags={"enable-metrics": True, "skip-server-warmup": False}
        if engine == "sglang"
        else {"max-num-seqs": 8},
        env={"HF_HUB_OFFLINE": "1"},
    )
    return replace(base, **changes)


def _slugs(profile: Profile) -> set[str]:
    return {problem.slug for problem in engine_named(profile.engine).check(profile)}


def test_sglang_command_line() -> None:
    profile = _profile(flags={"enable-metrics": True, "a": False, "cuda-graph-bs-decode": (1, 2)})
    assert ENGINES["sglang"].argv(profile) == (
        *("python3", "-m", "sglang.launch_server", "--model-path", "/models/target"),
        *("--host", "127.0.0.1", "--port", "30000", "--served-model-name", "tiny"),
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/models/draft"),
        *("--speculative-num-steps", "5", "--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", "6", "--enable-metrics"),
        *("--cuda-graph-bs-decode", "1", "2"),
    )
    assert ENGINES["sglang"].environment(profile) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "HF_HUB_OFFLINE": "1",
    }


def test_vllm_command_line() -> None:
    profile = _profile("vllm", python="/opt/v/bin/python3", gpus=None)
    argv = ENGINES["vllm"].argv(profile)
    assert argv[:3] == ("/opt/v/bin/vllm", "serve", "/models/target")
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == {
        "method": "eagle3",
        "model": "/models/draft",
        "num_speculative_tokens": 5,
    }
    assert ENGINES["vllm"].environment(profile) == {"HF_HUB_OFFLINE": "1"}


def test_vllm_speculative_config_adds_to_the_profile() -> None:
    more = {"draft_tensor_parallel_size": 1, "num_speculative_tokens": 2}
    argv = ENGINES["vllm"].argv(_profile("vllm", flags={"speculative-config": more}))
    assert argv.count("--speculative-config") == 1
    config = json.loads(argv[argv.index("--speculative-config") + 1])
    assert config["method"] == "eagle3"
    assert config["num_speculative_tokens"] == 2


def test_own_start_of_the_command() -> None:
    sglang = ENGINES["sglang"].argv(_profile(command=("sglang", "serve")))
    assert sglang[:3] == ("sglang", "serve", "--model-path")
    vllm = ENGINES["vllm"].argv(_profile("vllm", command=("docker", "exec", "c", "vllm", "serve")))
    assert vllm[:6] == ("docker", "exec", "c", "vllm", "serve", "/models/target")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_good_profiles_have_no_problem(engine: str) -> None:
    assert ENGINES[engine].check(_profile(engine)) == []
    assert ENGINES[engine].check(_profile(engine, draft=None, speculation=None)) == []


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"speculation": Speculation(steps=5)}, "speculation-incomplete"),
        ({"speculation": Speculation(steps=3, topk=1, draft_tokens=16)}, "topk1-draft-tokens"),
        ({"speculation": Speculation(steps=1, topk=2, draft_tokens=9)}, "draft-tokens-exceed-tree"),
        ({"speculation": Speculation(steps=0, topk=1, draft_tokens=1)}, "out-of-range"),
        ({"speculation": Speculation(algorithm="EAGEL3")}, "unknown-algorithm"),
        ({"draft": None}, "draft-missing"),
        ({"speculation": None}, "draft-unused"),
        (
            {"draft": "x/Qwen3-EAGLE-3", "speculation": replace(EAGLE3, algorithm="EAGLE")},
            "eagle-for-eagle3-draft",
        ),
        ({"flags": {"cuda-graph-max-bs": 16}}, "flag-removed"),
        ({"flags": {"mem-fracton-static": 0.8}}, "unknown-flag"),
        ({"flags": {"mem-fraction-static": 1.2}}, "out-of-range"),
        ({"flags": {"mem-fraction-static": "much"}}, "out-of-range"),
        ({"flags": {"mem-fraction-static": ""}}, "no-value"),
        ({"flags": {"port": 1}}, "flag-owned-by-profile"),
        ({"flags": {"tp-size": 4}}, "not-enough-gpus"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, "gpus-chosen-twice"),
        ({"gpus": (1, 1)}, "gpus-chosen-twice"),
        ({"port": 70000}, "out-of-range"),
        ({"model": ""}, "model-missing"),
        (
            {
                "speculation": Speculation(steps=3, topk=4, draft_tokens=16),
                "flags": {"attention-backend": "trtllm_mha"},
            },
            "topk-attention-backend",
        ),
    ],
)
def test_sglang_problems(changes: dict[str, Any], slug: str) -> None:
    assert _slugs(_profile(**changes)) == {slug}


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"draft": None}, "draft-missing"),
        ({"speculation": Speculation(steps=3, topk=4, draft_tokens=4)}, "vllm-topk"),
        ({"speculation": Speculation(steps=3, topk=1, draft_tokens=6)}, "topk1-draft-tokens"),
        ({"speculation": Speculation()}, "vllm-tokens-missing"),
        ({"speculation": Speculation(draft_tokens=1)}, "out-of-range"),
        ({"speculation": Speculation(algorithm="eagel3", draft_tokens=3)}, "unknown-algorithm"),
        (
            {"draft": "x/eagle3-qwen", "speculation": replace(EAGLE3, algorithm="EAGLE")},
            "eagle-for-eagle3-draft",
        ),
        ({"flags": {"gpu-memory-utilization": 0}}, "out-of-range"),
        ({"flags": {"no-prefix-caching": True}}, "unknown-flag"),
        ({"flags": {"num-speculative-tokens": 2}}, "flag-removed"),
        (
            {"flags": {"speculative-config": {"draft_tensor_parallel_size": 4}}},
            "draft-tp-invalid",
        ),
        (
            {
                "speculation": None,
                "draft": None,
                "flags": {"speculative-config": {"model": "d", "num_speculative_tokens": 3}},
            },
            "vllm-method-missing",
        ),
        (
            {"speculation": None, "draft": None, "flags": {"speculative-config": "{method:x}"}},
            "bad-speculative-config",
        ),
    ],
)
def test_vllm_problems(changes: dict[str, Any], slug: str) -> None:
    assert _slugs(_profile("vllm", **changes)) == {slug}


def test_all_problems_at_once_and_the_nearest_flag() -> None:
    problems = ENGINES["sglang"].check(
        _profile(speculation=Speculation(steps=5), flags={"mem-fracton-static": 0.8, "host": "x"})
    )
    assert {p.slug for p in problems} == {
        "speculation-incomplete",
        "unknown-flag",
        "flag-owned-by-profile",
    }
    unknown = next(p for p in problems if p.slug == "unknown-flag")
    assert unknown.severity is Severity.ERROR
    assert "mem-fraction-static" in unknown.hint


def test_engines_by_name() -> None:
    assert engine_named("vllm").title == "vLLM"
    with pytest.raises(ConfigError, match="did you mean 'sglang'"):
        engine_named("sglan")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python3 -m sglang.launch_server --model-path m", "sglang"),
        ("/opt/v/bin/python /opt/v/bin/sglang serve m", "sglang"),
        ("/opt/v/bin/python3 /opt/v/bin/vllm serve m", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("python -m sglang.bench_serving", None),
        ("vllm bench serve", None),
        ("", None),
    ],
)
def test_engine_of_a_command_line(line: str, name: str | None) -> None:
    engine = engine_of(tuple(line.split()))
    assert (engine.name if engine else None) == name


def test_health_verdicts() -> None:
    assert ENGINES["sglang"].health_verdict(503) is HealthVerdict.STARTING
    assert ENGINES["vllm"].health_verdict(503) is HealthVerdict.BAD
    assert {engine.health_verdict(200) for engine in ENGINES.values()} == {HealthVerdict.OK}


@pytest.mark.parametrize(
    ("engine", "flag", "severity"),
    [
        ("sglang", "tp-sise", Severity.ERROR),
        ("sglang", "mem_fraction_static", Severity.ERROR),
        ("sglang", "no-such-thing-at-all", Severity.WARNING),
        ("vllm", "max-model-lne", Severity.ERROR),
        ("vllm", "max_model_len", None),
        ("vllm", "compilation-config.mode", None),
        ("vllm", "no-such-thing-at-all", Severity.WARNING),
    ],
)
def test_a_flag_that_is_nearly_known_is_an_error(
    engine: str, flag: str, severity: Severity | None
) -> None:
    problems = ENGINES[engine].check(_profile(engine, flags={flag: 3}))
    found = [problem for problem in problems if problem.slug == "unknown-flag"]
    assert [problem.severity for problem in found] == ([] if severity is None else [severity])
    assert all("did you mean" in one.hint for one in found if one.severity is Severity.ERROR)


@pytest.mark.parametrize(
    ("engine", "flags", "key"),
    [
        ("sglang", {"api-key": "k1"}, "k1"),
        ("sglang", {"api-key": 1234}, "1234"),
        ("sglang", {}, None),
        ("vllm", {"api-key": ("k1", "k2")}, "k1"),
        ("vllm", {"api_key": "k1"}, "k1"),
        ("vllm", {}, "of-env"),
        ("vllm", {"api-key": False}, "of-env"),
    ],
)
def test_a_key_is_found_however_it_is_given(engine: str, flags: Any, key: str | None) -> None:
    profile = _profile(engine, flags=flags, env={"VLLM_API_KEY": "of-env"})
    assert ENGINES[engine].api_key(profile) == key
