"""Servers that a console saw last are offered by shells, without asking any host."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from eaglemon.cli.main import cli
from eaglemon.core.hosts import LinkState
from eaglemon.core.views import Snapshot
from eaglemon.io.seen_servers import recall_servers, remember_servers, seen_file
from tests.tui import snapshots


def offered(words: str) -> list[str]:
    *args, typed = words.split(" ")
    shell = BashComplete(cli, {}, "eaglemon", "_EAGLEMON_COMPLETE")
    return [item.value for item in shell.get_completions(args, typed)]


def test_servers_are_remembered_by_host_and_offered_by_name_and_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert offered("kill ") == []
    fleet = snapshots.FLEET
    remember_servers(fleet)
    assert {"k25-eagle3", "run-ready", "k25-eagle3-24"} <= set(offered("wait "))
    # One that has ended is known by its id alone: its name may be that of a living one.
    assert "run-failed" in offered("logs run-f")
    assert "k25-eagle3-16" not in offered("logs k25")
    # A host that does not answer keeps what was seen on it, one that does has what it shows.
    hosts = tuple(
        replace(host, state=LinkState.DOWN) if host.name == "h200-a" else host
        for host in fleet.hosts
    )
    remember_servers(Snapshot(at=fleet.at, hosts=hosts))
    assert offered("kill run-ready") == ["run-ready"]
    assert offered("kill run-failed") == []


def test_a_file_that_is_no_such_file_offers_nothing_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    seen_file().parent.mkdir(parents=True)
    seen_file().write_text("[1]")
    assert offered("restart ") == []
    remember_servers(snapshots.FLEET)
    assert recall_servers()


def test_a_folder_that_cannot_be_written_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("")
    remember_servers(snapshots.FLEET, tmp_path / "taken" / "seen.json")
    assert "are not remembered" in caplog.text
