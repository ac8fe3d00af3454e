from collections.abc import Callable
from pathlib import Path

import pytest

from eaglemon.core.profiles import Speculation
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io.config import ProfileStore

Load = Callable[..., ProfileStore]
PACKAGED = (
    "sglang-baseline",
    "sglang-eagle3",
    "sglang-eagle3-90x10",
    "vllm-baseline",
    "vllm-eagle3",
)
"""Those that stand before the published pairs."""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write files below an empty user and project folder and load the profiles."""

    def load_files(files: dict[str, str] | None = None, config: str | None = None) -> ProfileStore:
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return ProfileStore.load(
            user=tmp_path / "user",
            project=tmp_path / "project",
            config=tmp_path / config if config else None,
        )

    return load_files


def test_packaged_profiles_load(load: Load) -> None:
    store = load()
    assert store.problems == ()
    assert store.names[: len(PACKAGED)] == PACKAGED


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_packaged_arms_differ_in_speculation_alone(load: Load, engine: str) -> None:
    store = load()
    base, eagle = store.get(f"{engine}-baseline"), store.get(f"{engine}-eagle3")
    assert base.speculation is None
    assert base.draft is None
    assert eagle.speculation == Speculation(algorithm="EAGLE3", steps=5, topk=1, draft_tokens=6)
    assert eagle.draft
    assert (eagle.flags, eagle.env, eagle.model, eagle.port, eagle.gpus) == (
        (base.flags, base.env, base.model, base.port, base.gpus)
    )


def test_layers_nearest_wins(load: Load) -> None:
    store = load(
        {
            "user/profiles/mine.toml": 'engine = "sglang"\nmodel = "user"\nport = 1\n',
            "project/.eaglemon/profiles/mine.toml": (
                'engine = "sglang"\nmodel = "folder"\nport = 2\n'
            ),
            "project/eaglemon.toml": (
                '[profiles.mine]\nengine = "sglang"\nmodel = "project"\nport = 3\n'
            ),
            "over.toml": '[profiles.mine]\nextends = "mine"\nport = 4\n',
        },
        config="over.toml",
    )
    assert store.problems == ()
    profile = store.get("mine")
    assert (profile.model, profile.port) == ("project", 4)


def test_config_may_be_a_folder_and_comes_last(load: Load) -> None:
    store = load(
        {
            "project/eaglemon.toml": '[profiles.mine]\nengine="vllm"\nmodel="a"\nport=3\n',
            "other/profiles/mine.toml": 'engine="vllm"\nmodel="b"\nport=5\n',
        },
        config="other",
    )
    assert store.get("mine").model == "b"


def test_missing_config_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(config="nowhere.toml")


def test_extends_merges_tables_and_replaces_values(load: Load) -> None:
    store = load(
        {
            "user/profiles/a.toml": (
                'extends = "sglang-eagle3"\nport = 31000\n'
                "[flags]\nmem-fraction-static = 0.7\nenable-metrics = false\n"
                '[env]\nHF_HOME = "/data"\n[speculation]\nsteps = 3\ndraft_tokens = 4\n'
            ),
            "user/profiles/b.toml": 'extends = "a"\n[limits]\nready_s = 60\n',
        }
    )
    assert store.problems == ()
    profile = store.get("b")
    assert profile.port == 31000
    assert profile.flags["mem-fraction-static"] == 0.7
    assert profile.flags["enable-metrics"] is False
    assert profile.flags["max-running-requests"] == 32
    assert profile.env == {"HF_HOME": "/data"}
    assert profile.speculation == Speculation(steps=3, topk=1, draft_tokens=4)
    assert profile.limits.ready_s == 60.0
    assert profile.limits.stop_grace_s == 15.0


def test_false_takes_back_what_a_parent_set(load: Load) -> None:
    store = load(
        {"user/profiles/a.toml": 'extends = "sglang-eagle3"\nspeculation = false\ngpus = false\n'}
    )
    profile = store.get("a")
    assert (profile.speculation, profile.draft, profile.gpus) == (None, None, None)


def test_extending_the_own_name_builds_on_the_layer_below(load: Load) -> None:
    store = load({"user/profiles/sglang-eagle3.toml": 'extends = "sglang-eagle3"\nport = 31111\n'})
    profile = store.get("sglang-eagle3")
    assert profile.port == 31111
    assert profile.draft


def test_circles_are_refused_and_hide_nothing_else(load: Load) -> None:
    store = load(
        {
            "user/profiles/a.toml": 'extends = "b"\n',
            "user/profiles/b.toml": 'extends = "a"\n',
            "user/profiles/c.toml": 'extends = "c"\n',
        }
    )
    assert store.names[: len(PACKAGED)] == PACKAGED
    assert len(store.problems) == 3
    assert "a -> b -> a" in str(store.problems[0])
    assert "a.toml:1: extends" in str(store.problems[0])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('engine = "sglang"\nmodle = "x"\nport = 1\n', ("bad.toml:2: modle", "'model'")),
        ('extends = "sglang-eagle"\n', ("bad.toml:1: extends", "'sglang-eagle3'")),
        (
            'extends = "sglang-eagle3"\n\n[speculation]\nstesp = 3\n',
            ("bad.toml:4: speculation.stesp", "'steps'"),
        ),
        (
            'extends = "sglang-eagle3"\n[speculation]\ndraft-tokens = 3\n',
            ("bad.toml:3: speculation.draft-tokens", "'draft_tokens'"),
        ),
        ('extends = "sglang-eagle3"\nport = "x"\n', ("bad.toml:2: port", "whole number", "'x'")),
        ('extends = "sglang-eagle3"\nport = true\n', ("bad.toml:2: port", "whole number", "true")),
        ('extends = "sglang-eagle3"\nport = 70000\n', ("bad.toml:2: port", "70000")),
        ('extends = "sglang-eagle3"\ngpus = [0, 0]\n', ("bad.toml:2: gpus", "different")),
        ('extends = "sglang-eagle3"\nflags = 3\n', ("bad.toml:2: flags", "table")),
        ('extends = "sglang-eagle3"\nextends = "x"\n', ("bad.toml:2", "not valid TOML")),
        ('extends = "sglang-eagle3\n', ("bad.toml:1", "not valid TOML")),
        ("extends = 3\n", ("bad.toml:1: extends", "name of a profile")),
        (
            'extends = "sglang-eagle3"\n[flags]\n"--tp-size" = 2\n',
            ("bad.toml:3: flags.--tp-size", "write tp-size"),
        ),
        (
            'extends = "sglang-eagle3"\n[flags]\nwhen = 2026-01-01\n',
            ("bad.toml:3: flags.when", "must be"),
        ),
        (
            'extends = "sglang-eagle3"\n[limits]\nready_s = 0\n',
            ("bad.toml:3: limits.ready_s", "more than 0"),
        ),
        ('extends = "sglang-eagle3"\n[probe]\nrequests = 0\n', ("bad.toml:3", "1 or more")),
        (
            'engine = "sglng"\nmodel = "x"\n',
            ("bad.toml:1: engine", "did you mean 'sglang'"),
        ),
        ('model = "x"\nport = 1\n', ("bad.toml: engine", "is missing")),
        ('extends = "sglang-eagle3"\nname = "x"\n', ("bad.toml:2: name", "not a known key")),
        (
            'extends = "sglang-eagle3"\nbefore_launch = ["true"]\n',
            ("bad.toml:2: before_launch", "write it as before_launch in [hooks]"),
        ),
    ],
)
def test_a_broken_file_names_line_key_and_fix(
    load: Load, text: str, parts: tuple[str, ...]
) -> None:
    store = load({"user/profiles/bad.toml": text})
    assert store.names[: len(PACKAGED)] == PACKAGED
    (problem,) = store.problems
    for part in parts:
        assert part in str(problem)
    with pytest.raises(ConfigError) as caught:
        store.get("bad")
    assert caught.value.exit_code == 2
    assert parts[0] in str(caught.value)


def test_the_port_is_the_engines_unless_given(load: Load) -> None:
    store = load({"user/profiles/a.toml": 'engine = "vllm"\nmodel = "x"\n'})
    assert store.get("a").port == 8000


def test_all_problems_of_a_file_are_told_at_once(load: Load) -> None:
    store = load({"user/profiles/bad.toml": 'port = "x"\nmodle = 1\n[limits]\nredy_s = 3\n'})
    assert len(store.problems) == 3


def test_a_broken_file_does_not_let_the_packaged_profile_through(load: Load) -> None:
    store = load({"user/profiles/sglang-eagle3.toml": "port = \n"})
    with pytest.raises(ConfigError, match="not valid TOML"):
        store.get("sglang-eagle3")
    assert "sglang-baseline" in store.names


def test_a_child_of_a_broken_parent_says_so(load: Load) -> None:
    store = load(
        {"user/profiles/a.toml": "port = \n", "user/profiles/b.toml": 'extends = "a"\nport = 2\n'}
    )
    with pytest.raises(ConfigError, match=r"b\.toml:1: extends: 'a' is broken"):
        store.get("b")


def test_files_that_are_no_text_are_named(load: Load, tmp_path: Path) -> None:
    load({"user/profiles/a.toml": ""})
    (tmp_path / "user/profiles/a.toml").write_bytes(b"\xff\xfe")
    store = load()
    assert "a.toml: is not UTF-8" in str(store.problems[0])


def test_a_broken_project_file_is_a_problem(load: Load) -> None:
    store = load({"project/eaglemon.toml": "[profile.x]\nport = 1\n"})
    assert store.names[: len(PACKAGED)] == PACKAGED
    assert "did you mean 'profiles'?" in str(store.problems[0])


def test_profile_names_must_be_usable(load: Load) -> None:
    store = load({"project/eaglemon.toml": '[profiles."a/../b"]\nport = 1\n'})
    assert "no usable name" in str(store.problems[0])


def test_unknown_profile_names_the_nearest(load: Load) -> None:
    with pytest.raises(UsageError, match="did you mean 'sglang-eagle3'"):
        load().get("sglang-eagel3")
