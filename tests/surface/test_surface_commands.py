"""First steps on the command line: init, completion, the linear status; pages made from tables."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from eaglemon.cli.init import hosts_text
from eaglemon.cli.main import COMMANDS, run
from eaglemon.cli.watching import Changes, opening_lines
from eaglemon.core.hosts import LinkState
from eaglemon.io.config import ProfileStore
from eaglemon.io.host_config import load_hosts
from eaglemon.io.ssh_names import ssh_names
from tests.tui import snapshots

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    ssh = tmp_path / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text(
        "Include more/*\nHost gpu-a gpu-b *.lab !x\n  User ml\nHost=gpu-c # mine\n",
        encoding="utf-8",
    )
    (ssh / "more").mkdir()
    (ssh / "more" / "one").write_text("Host jump\nInclude ~/.ssh/config\n", encoding="utf-8")
    return tmp_path


def test_names_of_ssh_are_offered_without_patterns(home: Path) -> None:
    assert ssh_names() == ("jump", "gpu-a", "gpu-b", "gpu-c")
    assert ssh_names(home / "nothing") == ()


def test_init_writes_what_can_be_read_and_keeps_what_is_there(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", "--dry-run"]) == 0
    assert not (home / "config").exists()
    assert run(["init"]) == 0
    folder = home / "config" / "eaglemon"
    text = (folder / "hosts.toml").read_text(encoding="utf-8")
    assert '# [hosts."gpu-a"]' in text
    assert [host.name for host in load_hosts()] == ["local"]
    store = ProfileStore.load()
    assert store.problems == ()
    assert "my-eagle3" in store.names
    capsys.readouterr()
    (folder / "hosts.toml").write_text("# mine\n", encoding="utf-8")
    assert run(["init"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "kept" in err
    assert (folder / "hosts.toml").read_text(encoding="utf-8") == "# mine\n"
    assert run(["init", "--force", "--json"]) == 0
    assert "gpu-b" in (folder / "hosts.toml").read_text(encoding="utf-8")


def test_every_offered_line_is_good_once_its_mark_is_gone(home: Path) -> None:
    folder = home / "config" / "eaglemon"
    folder.mkdir(parents=True)
    lines = hosts_text(("gpu-a", "gpu.b")).splitlines()
    text = "\n".join(line[2:] if line.startswith('# [hosts."') else line for line in lines)
    (folder / "hosts.toml").write_text(text, encoding="utf-8")
    assert {host.name for host in load_hosts()} >= {"gpu-a", "gpu.b"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert f"_EAGLEMON_COMPLETE={shell}_complete" in out
    assert "eaglemon" in out.splitlines()[0]


def test_completion_names_commands_and_hosts(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_EAGLEMON_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "eaglemon g")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        run([])
    words = [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]
    assert words == [
        *[name for name in COMMANDS if name.startswith("g")],
        "gpu-a",
        "gpu-b",
        "gpu-c",
    ]
    assert home.exists()


def test_the_linear_mode_says_each_change_once() -> None:
    changes = Changes(60)
    assert changes.lines(snapshots.FLEET) == []
    assert changes.lines(snapshots.FLEET) == []
    host = replace(snapshots.FLEET.hosts[0], state=LinkState.DOWN, detail="no route")
    later = replace(snapshots.FLEET, hosts=(host,), at=snapshots.AT + 5)
    found = changes.lines(later)
    assert len(found) == 1
    assert found[0].endswith("h200-a is down: no route")
    assert changes.lines(replace(later, at=snapshots.AT + 6)) == []
    figures = changes.lines(replace(later, at=snapshots.AT + 61))
    assert any("8 GPUs" in line for line in figures)
    assert any("accept length 2.81, 141.2 tok/s" in line for line in figures)


def test_the_linear_mode_speaks_in_sentences() -> None:
    lines = opening_lines(snapshots.FLEET)
    assert lines[0] == "h200-a is up"
    assert lines[1].startswith("h200-a GPU 0: NVIDIA H200, 112.0 of 140.4 GiB, busy 97 %, 61 deg")
    assert "k25-eagle3 on h200-a is ready" in lines
    assert opening_lines(snapshots.IDLE)[-1] == "no servers"
    assert all(line.isprintable() and "  " not in line for line in lines)
    host = snapshots.FLEET.hosts[0]
    assert host.sample is not None
    changes = Changes(60)
    changes.lines(replace(snapshots.FLEET, servers=()))
    lost = replace(host.sample.gpus[0], error="GPU is lost")
    gpus = (lost, *host.sample.gpus[1:])
    later = replace(host, sample=replace(host.sample, gpus=gpus))
    found = changes.lines(replace(snapshots.FLEET, hosts=(later,), servers=(snapshots.ready(),)))
    assert found[0].endswith("h200-a GPU 0: GPU is lost")
    assert found[1].endswith("k25-eagle3 on h200-a: launched, port 30000")
    assert not any("[" in line for line in found)


def test_watch_and_json_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--watch", "--json"]) == 2
    assert "--watch writes lines" in capsys.readouterr().err


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs/make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["keys", "commands"])
def test_pages_made_from_tables_are_fresh(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "98")
    text = getattr(maker(), f"{page}_page")()
    stored = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert text == stored, f"docs/{page}.md is not fresh: run python docs/make_reference.py"
