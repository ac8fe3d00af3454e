"""Small values: redaction, problems, profile digests, host sums."""

from dataclasses import replace

import pytest

from eaglemon.core.hosts import GpuSample, HostSample
from eaglemon.core.problems import did_you_mean
from eaglemon.core.profiles import Profile, Speculation
from eaglemon.core.redact import MASK, mask_argv, mask_command, mask_env, mask_line, secrets_of

PROFILE = Profile(name="a", engine="sglang", model="/m", port=30000)


def test_secrets_are_masked_in_both_spellings() -> None:
    argv = ["serve", "--api-key", "s3cret", "--admin-api-key=s3cret", "--tokenizer-path", "/t"]

    assert mask_argv(argv) == [
        "serve",
        "--api-key",
        MASK,
        f"--admin-api-key={MASK}",
        "--tokenizer-path",
        "/t",
    ]


def test_all_values_of_a_secret_flag_are_masked() -> None:
    argv = ["env", "HF_TOKEN=k0", "serve", "--api-key", "k1", "k2", "--port", "8000", "/m"]
    masked = ["env", f"HF_TOKEN={MASK}", "serve", "--api-key", MASK, MASK, "--port", "8000", "/m"]
    assert mask_argv(argv) == masked
    assert mask_command(" ".join(argv)) == " ".join(masked)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ServerArgs(port=1, api_key='k', host='h')", "ServerArgs(port=1, api_key=***, host='h')"),
        (
            "non-default args: {'api_key': ['k1', 'k2'], 'port': 8000}",
            "non-default args: {'api_key': ***, 'port': 8000}",
        ),
        ("ssl_keyfile_password=None, api_key=None", "ssl_keyfile_password=None, api_key=None"),
        (
            "VLLM_API_KEY=k vllm serve /m --api-key k",
            "VLLM_API_KEY=*** vllm serve /m --api-key ***",
        ),
        ("Authorization: Bearer k.k", "Authorization: Bearer ***"),
        (
            "Prefill batch, #new-token: 5, #cached-token: 0, token usage: 0.50, a=1",
            "Prefill batch, #new-token: 5, #cached-token: 0, token usage: 0.50, a=1",
        ),
        ("refused what-a-profile-has, twice: what-a-profile-has", "refused ***, twice: ***"),
    ],
)
def test_secrets_in_lines_of_logs_are_masked(line: str, shown: str) -> None:
    flags = {"api-key": ("what-a-profile-has", "8"), "port": "8000"}
    assert secrets_of(flags) == {"what-a-profile-has", "8"}
    assert mask_line(line, secrets_of(flags)) == shown


def test_only_secret_variables_are_masked() -> None:
    env = {"HF_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "CUDA_VISIBLE_DEVICES": "0"}

    assert mask_env(env) == {
        "HF_TOKEN": MASK,
        "AWS_SECRET_ACCESS_KEY": MASK,
        "CUDA_VISIBLE_DEVICES": "0",
    }


def test_the_nearest_name_is_offered() -> None:
    assert did_you_mean("sglang-eagle", ["sglang-eagle3", "vllm-eagle3"]) == (
        "did you mean 'sglang-eagle3'?"
    )
    assert did_you_mean("zzz", ["a", "b"]) == "known: a, b"


def test_digest_is_of_behaviour_not_of_name() -> None:
    assert PROFILE.digest() == replace(PROFILE, name="b", description="x").digest()
    assert PROFILE.digest() != replace(PROFILE, port=30001).digest()
    assert PROFILE.digest() != replace(PROFILE, speculation=Speculation()).digest()


def test_ceiling_counts_the_bonus_token() -> None:
    assert Speculation(steps=5, topk=1, draft_tokens=6).ceiling == 6
    assert Speculation(steps=3, topk=4, draft_tokens=16).ceiling == 4
    assert Speculation().ceiling is None


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    gpus = (
        GpuSample(index=0, uuid="a", memory_used_bytes=5),
        GpuSample(index=1, uuid="b", memory_used_bytes=None),
    )
    sample = HostSample(at=0.0, gpus=gpus)

    assert sample.memory_used_bytes(frozenset({"a"})) == 5
    assert sample.memory_used_bytes(frozenset({"a", "b"})) is None
    assert sample.memory_used_bytes(frozenset({"a", "c"})) is None
