"""Commands around a server's life, on a console with prepared answers."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, home, run  # noqa: F401 -- fixtures
from tests.cli.fake_console import SERVER, FakeConsole, server


@pytest.mark.parametrize(
    "arguments",
    [
        ("launch", "sglang-eagle3", "--host", "local"),
        ("kill", SERVER),
        ("restart", SERVER),
    ],
)
def test_read_only_takes_away_what_changes_servers(
    run: CommandLine,  # noqa: F811
    arguments: tuple[str, ...],
) -> None:
    result = run("--read-only", *arguments)
    assert result.code == 2
    assert "--read-only" in result.err
    assert run.consoles == []
    listed = run("--read-only", "--help").out
    assert "\n  kill " not in listed
    assert "\n  status " in listed
    assert "\n  kill " in run("--help").out
    assert run("--read-only", "status").code == 0


def test_read_only_from_the_environment(
    run: CommandLine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EAGLEMON_READ_ONLY", "1")
    assert run("kill", SERVER).code == 2


def test_restart_waits_for_the_new_server(run: CommandLine) -> None:  # noqa: F811
    def known(console: FakeConsole) -> None:
        again = f"{SERVER}-again"
        console.servers[again] = server(id=again)

    result = run("restart", SERVER, prepare=known)
    assert result.code == 0
    assert f"started {SERVER}-again" in result.err


def test_a_foreign_server_is_never_ended_by_the_plain_command(
    run: CommandLine,  # noqa: F811
) -> None:
    refused = run("kill", "123@gpu-a")
    assert refused.code == 2
    assert "--foreign" in refused.err
    unnamed = run("kill", "sglang", "--foreign")
    assert unnamed.code == 2
    assert "PID@HOST" in unnamed.err
    unasked = run("kill", "123@gpu-a", "--foreign")
    assert unasked.code == 2
    assert "--yes" in unasked.err
    assert run.consoles == []


def test_a_host_without_foreign_servers_is_told(run: CommandLine) -> None:  # noqa: F811
    result = run("foreign", "local", "--json")
    assert (result.code, result.document["foreign"]) == (0, [])
    assert "no server was found" in run("foreign", "local").err


def test_wait_for_an_address(
    run: CommandLine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run("wait", "http://127.0.0.1:9", "--timeout", "3s")
    assert result.code == 2
    assert "http://127.0.0.1:9 on local: no answer in 3.0 s" in result.err
    assert run("wait", "http://x:1", "--host", "a", "--host", "b").code == 2
    assert run("wait", "http://x:1", "--api-key-env", "NOT_THERE").code == 2
    monkeypatch.setenv("KEY_THERE", "geheim")
    assert "geheim" in run("wait", "http://x:1", "--api-key-env", "KEY_THERE").err


def test_a_dry_run_shows_hooks_and_masks_secrets(
    run: CommandLine,  # noqa: F811
    home: Path,  # noqa: F811
) -> None:
    text = '[profiles.h]\nextends = "sglang-eagle3"\n[profiles.h.env]\nHF_TOKEN = "geheim"\n'
    text += '[profiles.h.hooks]\nbefore_launch = ["echo a"]\nafter_stop = ["echo b"]\n'
    (home / "project/eaglemon.toml").write_text(text, encoding="utf-8")
    result = run("launch", "h", "--host", "local", "--dry-run")
    assert result.out.splitlines()[0] == "before_launch: echo a"
    assert result.out.splitlines()[-1] == "after_stop: echo b"
    assert "geheim" not in result.out + result.err
    document = run("launch", "h", "--host", "local", "--dry-run", "--json")
    assert json.loads(document.out)["plan"]["profile"]["hooks"]["before_launch"] == ["echo a"]
    assert "geheim" not in document.out
