"""Values of profiles and hosts that are no texts, or texts that nothing takes."""

from pathlib import Path

import pytest

from eaglemon.core.problems import Severity
from eaglemon.core.profiles import Profile
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.io.host_config import host_named, load_hosts
from eaglemon.io.text_values import text_problem
from eaglemon.io.workloads import workload_problems

HEAD = 'engine = "sglang"\nmodel = "m"\n'


def _store(tmp_path: Path, text: str) -> ProfileStore:
    path = tmp_path / "user/profiles/mine.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return ProfileStore.load(user=tmp_path / "user", project=tmp_path / "project")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('engine = "sglang"\nmodel = "a\\u0000b"\n', "mine.toml:2: model", "U+0000"),
        ('engine = "sglang"\nmodel = "a\\u001b[31mb"\n', "mine.toml:2: model", "U+001B"),
        (HEAD + 'draft = "a\\nb"\n', "mine.toml:3: draft", "U+000A"),
        (HEAD + 'served_name = "a\\u0085"\n', "mine.toml:3: served_name", "U+0085"),
        (HEAD + 'command = ["vllm", "a\\u0000"]\n', "mine.toml:3: command", "U+0000"),
        (HEAD + '[env]\nA = "x"\nB = "x\\u0000y"\n', "mine.toml:5: env.B", "U+0000"),
        (HEAD + '[env]\n"B=C" = "x"\n', "mine.toml:4: env.B=C", "no name of a variable"),
        (HEAD + '[env]\n"" = "x"\n', "env.", "no name of a variable"),
        (HEAD + '[flags]\ndtype = "x\\u0000"\n', "mine.toml:4: flags.dtype", "U+0000"),
        (HEAD + '[flags]\nx = { "a" = ["b\\u0000"] }\n', "mine.toml:4: flags.x", "U+0000"),
        (HEAD + '[hooks]\nbefore_launch = ["a\\u0000"]\n', "hooks.before_launch", "U+0000"),
        (HEAD + '[probe]\nworkload = "a\\u0007"\n', "mine.toml:4: probe.workload", "U+0007"),
    ],
)
def test_texts_that_nothing_takes(tmp_path: Path, text: str, place: str, words: str) -> None:
    (problem,) = _store(tmp_path, text).problems
    assert place in problem.where
    assert words in problem.message


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (HEAD + '[env]\nA = 1\n"B=C" = "x"\n', "mine.toml:4: env.A", "must be a text in quotes"),
        (HEAD + 'env = { X = "1", Y = true }\n', "mine.toml:3: env.Y", "not true"),
        (HEAD + "[env]\nA = [1]\n", "mine.toml:4: env.A", "not a list"),
        (HEAD + '[stall_limits]\nimport = "x"\n', "mine.toml:4: stall_limits.import", "a number"),
        (HEAD + 'gpus = [0, "1"]\n', "mine.toml:3: gpus", "whole numbers; item 2 is '1'"),
        (HEAD + "[hooks]\nafter_stop = [1]\n", "mine.toml:4: hooks.after_stop", "item 1 is 1"),
        (HEAD + "env = 3\n", "mine.toml:3: env", "must be a table, not 3"),
    ],
)
def test_wrong_parts_of_tables_and_lists(tmp_path: Path, text: str, place: str, words: str) -> None:
    problem = _store(tmp_path, text).problems[0]
    assert place in problem.where
    assert words in problem.message
    assert "a table, not a table" not in problem.message
    assert "a list of texts, not a list" not in problem.message


def test_lines_are_taken_where_they_make_sense(tmp_path: Path) -> None:
    text = (
        'engine = "sglang"\nmodel = "m"\ndescription = "a\\nb"\n'
        '[env]\nA = "x\\ny"\n[flags]\nchat-template = "a\\n\\tb"\n[hooks]\nafter_stop = ["a\\nb"]\n'
    )
    store = _store(tmp_path, text)
    assert store.problems == ()
    assert isinstance(store.get("mine"), Profile)


@pytest.mark.parametrize(
    "settings", [{"model": "a\0b"}, {"model": "a\udcffb"}, {"env.A": "x\0"}, {"draft": "a\x1bb"}]
)
def test_set_takes_no_such_text(tmp_path: Path, settings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"--set .*(control character|UTF-8)"):
        _store(tmp_path, HEAD).get("mine", settings)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[hosts.a]\naddress = "x\\u0000"\n', "hosts.toml:2: hosts.a.address"),
        ('[hosts.a]\nuser = "x\\u001b"\n', "hosts.toml:2: hosts.a.user"),
        ('[hosts.a]\npython = "x\\n"\n', "hosts.toml:2: hosts.a.python"),
        ('[hosts.a]\nidentity = "x\\u0000"\n', "hosts.toml:2: hosts.a.identity"),
        ('[hosts.a]\nenv = { A = "x\\u0000" }\n', "hosts.toml:2: hosts.a.env"),
        ('[hosts."a\\u001b"]\naddress = "x"\n', "hosts.toml:1: hosts.a\x1b"),
    ],
)
def test_hosts_take_no_such_text(tmp_path: Path, text: str, place: str) -> None:
    (tmp_path / "hosts.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="control character") as caught:
        load_hosts(user=tmp_path, project=tmp_path / "project")
    assert place in str(caught.value)


@pytest.mark.parametrize("name", ["h\x1b[31m", "h\0", "h\u202e", "u@h\x07"])
def test_a_host_name_is_printable(name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a host") as caught:
        host_named(name, ())
    assert name not in str(caught.value)


def test_text_problem() -> None:
    assert text_problem("Ünïcode (a) ☃") is None
    assert text_problem("a\tb", one_line=False) is None
    assert text_problem("a\tb") is not None


def test_workloads_of_profiles(tmp_path: Path) -> None:
    assert workload_problems("chat") == workload_problems("random") == []
    (unknown,) = workload_problems("cod")
    assert (unknown.severity, unknown.hint) == (Severity.ERROR, "did you mean 'code'?")
    assert unknown.where == "probe.workload"
    (missing,) = workload_problems(str(tmp_path / "mine.jsonl"))
    assert missing.severity is Severity.WARNING
