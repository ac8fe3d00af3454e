"""Rules of the source text that no linter knows."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "eaglemon").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ON_HOSTS = ROOT / "eaglemon" / "agent"
"""Each of its programs is sent to hosts as one file."""
THIS = Path(__file__)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_modules_are_small_and_say_what_they_are_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.parent != ON_HOSTS:
        assert len(text.splitlines()) <= 400
    assert re.match(r"(#.*\n)*\"\"\"\S", text), "no module docstring"


def test_no_module_is_a_catch_all() -> None:
    names = {path.stem for path in SOURCES}
    assert names & {"utils", "util", "helpers", "manager", "managers", "misc", "common"} == set()


def test_engine_names_stay_with_the_engines() -> None:
    """No ``if engine == "sglang"`` outside of what knows engines by design."""
    at_home = ("eaglemon/engines/", "eaglemon/sim/")
    leaks = [
        f"{named(path)}:{node.lineno}"
        for path in SOURCES
        if not named(path).startswith(at_home)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in {"sglang", "vllm"}
    ]
    assert leaks == []


def test_the_product_reads_nothing_beside_the_repository() -> None:
    texts = {named(path): path.read_text(encoding="utf-8") for path in SOURCES}
    places = re.compile(r"\.\./shared|/work/|/root/|[\"']shared[\"']")
    assert [name for name, text in texts.items() if places.search(text)] == []


def test_nothing_names_a_folder_of_one_machine() -> None:
    files = [
        path
        for folder in ("eaglemon", "tests", "configs", "themes", "docs", ".ci")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in {".py", ".toml", ".md", ".txt", ".json", ".tcss", ""}
    ]
    files += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    place = re.compile(r"/work/(main|shared)|/root/\w")
    found = [
        named(path)
        for path in files
        if path != THIS and place.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def test_tests_do_not_sleep_to_wait() -> None:
    """Polling with a deadline sleeps a little; a second or more is waiting for luck."""
    found = [
        f"{named(path)}:{node.lineno}"
        for path in TESTS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "sleep"
        and isinstance(node.args[0], ast.Constant)
        and float(str(node.args[0].value)) >= 1
    ]
    assert found == []


def test_only_one_module_writes_each_stream() -> None:
    writers = {"stdout": "eaglemon/cli/output.py", "stderr": "eaglemon/cli/diagnostics.py"}
    command_line = [path for path in SOURCES if named(path).startswith("eaglemon/cli/")]
    for stream, owner in writers.items():
        using = re.compile(rf"sys\.{stream}\.write|click\.echo|\bprint\(")
        found = [
            named(path)
            for path in command_line
            if named(path) not in writers.values()
            and using.search(path.read_text(encoding="utf-8"))
        ]
        assert found == []
        assert f"sys.{stream}.write" in (ROOT / owner).read_text(encoding="utf-8")
