from pathlib import Path

import pytest

from eaglemon.core.profiles import Speculation
from eaglemon.errors import UsageError
from eaglemon.io.config import ProfileStore


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore.load(user=tmp_path, project=tmp_path)


def test_fields_take_their_own_type(store: ProfileStore) -> None:
    profile = store.get(
        "sglang-eagle3",
        {
            "port": "31000",
            "model": "/models/3",
            "draft": "/models/d",
            "gpus": "0,1",
            "served-name": "tiny",
            "command": "sglang serve '/a b'",
            "limits.ready_s": "60",
            "probe.requests": "4",
            "probe.temperature": "0.5",
        },
    )
    assert profile.port == 31000
    assert profile.model == "/models/3"
    assert profile.draft == "/models/d"
    assert profile.gpus == (0, 1)
    assert profile.served_name == "tiny"
    assert profile.command == ("sglang", "serve", "/a b")
    assert profile.limits.ready_s == 60.0
    assert profile.probe.requests == 4
    assert profile.probe.temperature == 0.5


@pytest.mark.parametrize("key", ["steps", "speculation.steps"])
def test_steps_alone_leave_the_draft_tokens(store: ProfileStore, key: str) -> None:
    # The engine's check says that they do not fit; changing them unasked would hide it.
    profile = store.get("sglang-eagle3", {key: "3"})
    assert profile.speculation == Speculation(steps=3, topk=1, draft_tokens=6)


@pytest.mark.parametrize("key", ["draft-tokens", "draft_tokens", "speculation.draft-tokens"])
def test_draft_tokens_have_short_names(store: ProfileStore, key: str) -> None:
    profile = store.get("sglang-eagle3", {"steps": "3", key: "4", "topk": "1"})
    assert profile.speculation == Speculation(steps=3, topk=1, draft_tokens=4)


def test_speculation_can_be_removed_and_added(store: ProfileStore) -> None:
    profile = store.get("sglang-eagle3", {"speculation": "none"})
    assert (profile.speculation, profile.draft) == (None, None)
    profile = store.get("sglang-baseline", {"draft": "/d", "steps": "2"})
    assert profile.speculation == Speculation(steps=2)


def test_flags_by_bare_name_and_by_full_name(store: ProfileStore) -> None:
    profile = store.get(
        "sglang-eagle3",
        {
            "mem-fraction-static": "0.5",
            "--max-running-requests": "8",
            "attention-backend": "7",
            "tp-size": "2",
            "trust-remote-code": "true",
            "flags.model-loader-extra-config": '{a = "b"}',
            "flags.cuda-graph-bs-decode": "[1, 2]",
            "dtype": "bfloat16",
            "context-length": "32k",
        },
    )
    flags = profile.flags
    assert flags["mem-fraction-static"] == 0.5
    assert flags["max-running-requests"] == 8
    assert flags["attention-backend"] == "7"
    assert flags["tp-size"] == 2
    assert flags["trust-remote-code"] is True
    assert flags["model-loader-extra-config"] == {"a": "b"}
    assert flags["cuda-graph-bs-decode"] == (1, 2)
    assert flags["dtype"] == "bfloat16"
    assert flags["context-length"] == "32k"


def test_none_removes_flags_and_variables(store: ProfileStore) -> None:
    profile = store.get(
        "sglang-eagle3", {"attention-backend": "none", "gpus": "none", "draft": "none"}
    )
    assert "attention-backend" not in profile.flags
    assert profile.gpus is None
    assert profile.draft is None
    profile = store.get("sglang-eagle3", {"env.A": "b=c", "env.B": "none", "flags.x": "none"})
    assert profile.env == {"A": "b=c"}


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("port", "abc", "whole number"),
        ("port", "99999", "65535"),
        ("gpus", "a", "list of whole numbers"),
        ("gpus", "0,0", "different"),
        ("gpu", "0", "'gpus'"),
        ("modle", "x", "'model'"),
        ("speculation", "3", "speculation.NAME"),
        ("flags", "3", "flags.NAME"),
        ("speculation.step", "3", "'steps'"),
        ("steps", "0", "1 or more"),
        ("limits.ready", "3", "'ready_s'"),
        ("limits.ready_s", "nan", "more than 0"),
        ("env.", "3", "variable"),
        ("flags.", "3", "flag name"),
        ("", "3", "flag name"),
    ],
)
def test_bad_settings_are_refused(store: ProfileStore, key: str, value: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        store.get("sglang-eagle3", {key: value})
    assert part in str(caught.value)


def test_the_store_keeps_the_profile_as_it_was(store: ProfileStore) -> None:
    before = store.get("sglang-eagle3")
    store.get("sglang-eagle3", {"port": "1", "env.A": "1", "x": "1"})
    assert store.get("sglang-eagle3") == before
