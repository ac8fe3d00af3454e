"""The program that finds an engine's release, run on this checkout, which is installed editable."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from eaglemon.app.environment import RELEASE_PROGRAM

ROOT = Path(__file__).parents[2]


def found(package: str) -> dict[str, str | None]:
    given = f"EAGLEMON_INPUT = {json.dumps({'package': package}).encode()!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", given + RELEASE_PROGRAM.decode()],
        capture_output=True,
        text=True,
        check=True,
    )
    parsed: dict[str, str | None] = json.loads(done.stdout)
    return parsed


def test_a_package_of_a_working_tree_tells_its_revision() -> None:
    head = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    answer = found("eaglemon")
    assert answer["version"] == metadata.version("eaglemon")
    if head.returncode == 0:
        assert (answer["revision"] or "").partition("+")[0] == head.stdout[:12]
    else:
        assert answer["revision"] is None


def test_an_installed_package_has_a_version_only() -> None:
    answer = found("click")
    assert answer["version"] == metadata.version("click")
    assert answer["revision"] is None


def test_a_missing_package_says_so() -> None:
    assert "PackageNotFoundError" in (found("no-such-engine")["error"] or "")
