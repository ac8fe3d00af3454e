"""Packaged profiles, command lines as profiles, and where a value comes from."""

import csv
import json
from pathlib import Path

import pytest

from eaglemon.core.problems import Severity
from eaglemon.core.profiles import Profile
from eaglemon.engines import ENGINES, import_command
from eaglemon.errors import UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.io.profile_text import profile_toml
from tests.cli.conftest import CommandLine, home, run  # noqa: F401 -- fixtures

CASES = Path(__file__).parents[3] / "shared" / "cases"


@pytest.fixture(name="store")
def _store(home: Path) -> ProfileStore:  # noqa: F811
    del home
    return ProfileStore.load()


def test_twenty_published_pairs_are_packaged_with_their_source(store: ProfileStore) -> None:
    published = [profile for profile in store.all() if profile.reference]
    pairs = {(profile.model, profile.draft) for profile in published}
    assert len(pairs) >= 20
    assert all(profile.reference.startswith("https://") for profile in published)
    assert all(profile.draft and profile.speculation for profile in published)


@pytest.mark.parametrize("version", [None, "newest"])
def test_every_packaged_profile_keeps_its_engine_s_rules(
    store: ProfileStore, version: str | None
) -> None:
    newest = {"sglang": "0.5.23", "vllm": "0.32.0"}
    for profile in store.all():
        named = newest[profile.engine] if version else None
        assert ENGINES[profile.engine].check(profile, named) == [], profile.name


def test_packaged_profiles_and_their_command_lines_agree(store: ProfileStore) -> None:
    for profile in store.all():
        engine = ENGINES[profile.engine]
        again = engine.profile_of(engine.argv(profile))
        assert (again.model, again.draft, again.speculation) == (
            profile.model,
            profile.draft,
            profile.speculation,
        ), profile.name


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.5.16", None),
        ("0.5.16.post1", None),
        ("0.5.20", Severity.WARNING),
        ("0.5.23", Severity.ERROR),
        ("0.6.0", Severity.ERROR),
        (None, Severity.WARNING),
        ("unknown", Severity.WARNING),
    ],
)
def test_a_removed_flag_by_release(version: str | None, severity: Severity | None) -> None:
    profile = Profile(name="x", engine="sglang", model="m", port=1, flags={"cuda-graph-max-bs": 4})
    problems = ENGINES["sglang"].check(profile, version)
    assert [problem.severity for problem in problems] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("version", "severity"),
    [("0.5.16", Severity.ERROR), ("0.5.20", Severity.WARNING), ("0.5.23", None), (None, None)],
)
def test_a_new_flag_by_release(version: str | None, severity: Severity | None) -> None:
    flags = {"speculative-use-block-verification": True}
    profile = Profile(name="x", engine="sglang", model="m", port=1, flags=flags)
    problems = ENGINES["sglang"].check(profile, version)
    assert [problem.severity for problem in problems] == ([severity] if severity else [])


def test_an_old_vllm_takes_its_old_flags() -> None:
    profile = Profile(
        name="x", engine="vllm", model="m", port=1, flags={"num-speculative-tokens": 2}
    )
    assert ENGINES["vllm"].check(profile, "0.8.3") == []
    assert ENGINES["vllm"].check(profile, "0.20.0")[0].slug == "flag-removed"


@pytest.mark.parametrize(
    ("ways", "start"),
    [
        ({"venv": "/opt/e/"}, ("/opt/e/bin/python", "-m", "sglang.launch_server")),
        ({"venv": "/opt/e", "launcher": "script"}, ("/opt/e/bin/sglang", "serve")),
        (
            {"conda": "sg", "python": "python"},
            ("conda", "run", "--no-capture-output", "-n", "sg", "python", "-m"),
        ),
        (
            {"container": "box", "workdir": "/w", "env": {"HF_TOKEN": "s"}},
            ("docker", "exec", "-e", "HF_TOKEN", "-w", "/w", "box", "python3", "-m"),
        ),
    ],
)
def test_how_python_is_reached(ways: dict[str, object], start: tuple[str, ...]) -> None:
    profile = Profile(name="x", engine="sglang", model="m", port=1, **ways)  # type: ignore[arg-type]
    argv = ENGINES["sglang"].argv(profile)
    assert argv[: len(start)] == start
    assert "s" not in argv


def test_python_is_reached_in_one_way(home: Path) -> None:  # noqa: F811
    text = '[profiles.x]\nextends = "sglang-eagle3"\nvenv = "/v"\ncontainer = "c"\nlauncher = "y"\n'
    (home / "project/eaglemon.toml").write_text(text + "stall_limits = { graphs = 3 }\n")
    told = " ".join(str(problem) for problem in ProfileStore.load().problems)
    assert "venv and container are given" in told
    assert "must be 'module' or 'script', not 'y'" in told
    assert "is no phase" in told


def test_where_values_come_from(home: Path, run: CommandLine) -> None:  # noqa: F811
    text = '[profiles.mine]\nextends = "sglang-eagle3"\n[profiles.mine.flags]\npage-size = 16\n'
    (home / "project/eaglemon.toml").write_text(text)
    shown = run("profiles", "show", "mine", "--origin", "--set", "port=31000", "--json")
    places = shown.document["origins"]
    assert places["flags.page-size"] == "eaglemon.toml:4"
    assert places["draft"].startswith("packaged profiles/sglang-eagle3.toml:")
    assert places["model"].startswith("packaged profiles/sglang-baseline.toml:")
    assert places["port"] == "--set"
    assert "limits.ready_s" not in places
    assert "page-size" in run("profiles", "show", "mine", "--origin").out


def test_a_command_line_is_checked_as_json(run: CommandLine) -> None:  # noqa: F811
    line = "python3 -m sglang.launch_server --model-path t --cuda-graph-max-bs 4 --tp 1"
    old = run("profiles", "check", "--command", line, "--engine-version", "0.5.16", "--json")
    assert (old.code, old.document["problems"]) == (0, [])
    new = run("profiles", "check", "--command", line, "--engine-version", "0.5.23", "--json")
    assert new.code == 2
    assert new.document["problems"][0]["slug"] == "flag-removed"
    assert "cuda-graph-max-bs-decode" in new.document["problems"][0]["hint"]


def test_a_profile_is_checked_with_all_its_problems(run: CommandLine) -> None:  # noqa: F811
    arguments = ("--set", "steps=3", "--set", "mem-fraction-static=3", "--set", "flags.hots=1")
    result = run("profiles", "check", "sglang-eagle3", *arguments, "--json")
    assert result.code == 2
    assert {problem["slug"] for problem in result.document["problems"]} >= {
        "topk1-draft-tokens",
        "out-of-range",
        "unknown-flag",
    }
    assert run("profiles", "check").code == 2
    assert run("profiles", "check", "sglang-eagle3").code == 0


def test_an_imported_line_becomes_a_profile_that_starts_the_same(
    home: Path,  # noqa: F811
    run: CommandLine,  # noqa: F811
) -> None:
    line = (
        "CUDA_VISIBLE_DEVICES=1,2 python3 -m sglang.launch_server --model m/t --tp 2 "
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --api-key sk-1 "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
        """--model-loader-extra-config '{"a": 1}' --cuda-graph-bs-decode 1 2 4"""
    )
    result = run("profiles", "import", line, "--name", "pasted", "--write")
    assert result.code == 0
    assert "sk-1" not in result.out + result.err
    assert (home / "config/eaglemon/profiles/pasted.toml").stat().st_mode & 0o777 == 0o600
    store = ProfileStore.load()
    assert store.problems == ()
    engine = ENGINES["sglang"]
    assert engine.argv(store.get("pasted")) == engine.argv(import_command(line))
    again = run("profiles", "import", line, "--name", "pasted", "--write")
    assert again.code == 2
    assert "is there already" in again.err


def test_the_text_of_a_profile_reads_back(store: ProfileStore, home: Path) -> None:  # noqa: F811
    folder = home / "config/eaglemon/profiles"
    folder.mkdir(parents=True)
    for profile in store.all():
        (folder / f"{profile.name}.toml").write_text(profile_toml(profile), encoding="utf-8")
    for profile in ProfileStore.load().all():
        assert profile.digest() == store.get(profile.name).digest(), profile.name


@pytest.mark.skipif(
    not CASES.is_dir(), reason="the collection of public command lines is not beside the repository"
)
def test_public_command_lines_through_the_command(run: CommandLine) -> None:  # noqa: F811
    """Complete command lines: what is wrong with them is told, and a good one has no error."""
    with (CASES / "cmdlines.tsv").open(encoding="utf-8") as table:
        rows = list(csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    for _, line, verdict in rows:
        if "$" in line or "[described]" in line or "as logged" in line or "placeholders" in verdict:
            continue
        result = run("profiles", "check", "--command", line, "--json")
        problems = json.loads(result.out)["problems"]
        if verdict.startswith("INVALID"):
            assert problems, line
        elif verdict.startswith("valid"):
            assert problems == [], line
        else:
            # A release is not named: what only some refuse is a warning.
            errors = [problem for problem in problems if problem["severity"] == "error"]
            assert errors == [], line


def test_a_line_that_is_no_server_is_a_usage_error(run: CommandLine) -> None:  # noqa: F811
    with pytest.raises(UsageError):
        import_command("ls -l")
    assert run("profiles", "import", "ls -l").code == 2
