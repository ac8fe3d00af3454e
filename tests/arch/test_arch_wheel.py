"""The wheel carries profiles, workloads and themes, and works without the checkout."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def shipped(folder: str) -> set[str]:
    files = (ROOT / folder).rglob("*")
    return {path.relative_to(ROOT).as_posix() for path in files if path.is_file()}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_carries_themes_and_configs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"eaglemon/_data/{name}" for name in shipped("themes") | shipped("configs")}
    assert expected
    assert expected <= names
    assert "eaglemon/agent/agent.py" in names
    assert not any(name.startswith("tests/") for name in names)


def test_an_installed_wheel_finds_its_files(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The dependencies come from this environment, eaglemon itself from the new one alone.
    code = (
        "import sys, eaglemon\n"
        "from pathlib import Path\n"
        f"assert Path(eaglemon.__file__).is_relative_to({str(folder)!r}), eaglemon.__file__\n"
        f"sys.path.append({_dependencies()!r})\n"
        "from eaglemon.cli.main import run\n"
        "from eaglemon.cli.tui import themes\n"
        "print(sorted(themes()), file=sys.stderr)\n"
        "sys.exit(run(['profiles', '--json']))\n"
    )
    home = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [python, "-I", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **home},
    )
    assert done.returncode == 0, done.stderr
    profiles = {profile["name"] for profile in json.loads(done.stdout)["profiles"]}
    assert profiles == {path.stem for path in (ROOT / "configs" / "profiles").glob("*.toml")}
    assert done.stderr.strip() == str(sorted(p.stem for p in (ROOT / "themes").glob("*.toml")))


def test_a_checkout_uses_its_own_files() -> None:
    # An editable install copies the shipped folders to where they are stale and not looked for.
    code = "from eaglemon.io.resources import data_folder; print(data_folder('configs'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(ROOT / "configs")


def _dependencies() -> str:
    """Return the folder that this environment's packages are in."""
    import click

    return str(Path(click.__file__).parents[1])
