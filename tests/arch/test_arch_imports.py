"""What a plain import drags in, seen at run time: the static contracts cannot see a deferral."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "eaglemon"
PURE = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("core", "engines")
    for path in (PACKAGE / folder).rglob("*.py")
)


def modules_after(code: str) -> set[str]:
    """Return the names in ``sys.modules`` after ``code`` ran in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.split())


def test_the_pure_core_loads_no_io() -> None:
    code = "\n".join(f"import {name}" for name in PURE)
    heavy = {"asyncio", "socket", "ssl", "subprocess", "textual", "httpx", "asyncssh", "msgspec"}
    assert modules_after(code) & heavy == set()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("eaglemon.cli.main", {"asyncio", "textual", "asyncssh", "httpx", "msgspec"}),
        ("eaglemon.cli.profiles", {"asyncio", "textual", "asyncssh", "httpx"}),
        ("eaglemon.cli.hosts", {"asyncio", "textual", "asyncssh", "httpx"}),
        ("eaglemon.cli.status", {"textual", "torch"}),
        ("eaglemon.cli.session", {"textual", "torch", "asyncssh", "httpx", "httpcore"}),
        ("eaglemon.tui.app", {"asyncssh", "httpx", "torch", "sqlite3"}),
    ],
)
def test_entry_points_load_what_they_need_alone(module: str, heavy: set[str]) -> None:
    assert modules_after(f"import {module}") & heavy == set()


LATER = {
    "asyncssh", "httpx", "msgspec", "sqlite3", "torch",
    "eaglemon.io.config", "eaglemon.engines", "eaglemon.app.hub", "eaglemon.core.experiment",
    "eaglemon.core.verdict", "eaglemon.core.draft_views", "eaglemon.tui.deeds",
    "eaglemon.tui.palette", "eaglemon.tui.screens.server", "eaglemon.tui.screens.launch",
    "textual.widgets._text_area",
}  # fmt: skip
"""What the console's first picture does without, though all of it is needed soon after."""


def test_the_first_picture_is_drawn_before_what_it_does_not_show_is_loaded() -> None:
    code = """
import asyncio
from eaglemon.cli import main, tui
from eaglemon.io.host_config import load_hosts

async def first_picture():
    app = tui.ConsoleApp(tui.LateConsole(load_hosts()), themes=tui.themes(), opening=True)
    running = asyncio.create_task(app.run_async(headless=True, size=(200, 50)))
    await app.drawn.wait()
    import sys
    loaded.update(sys.modules)
    app.exit()
    await running

loaded = set()
asyncio.run(first_picture())
import sys
for name in set(sys.modules) - loaded:
    del sys.modules[name]
"""
    loaded = modules_after(code)
    assert "eaglemon.tui.screens.fleet" in loaded
    assert loaded & LATER == set()


def test_the_agent_needs_nothing_but_an_old_python() -> None:
    path = PACKAGE / "agent" / "agent.py"
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    allowed = set(sys.stdlib_module_names) | {"pynvml"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        assert {name.partition(".")[0] for name in names} <= allowed, names
