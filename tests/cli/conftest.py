import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eaglemon.app.api import Eaglemon
from eaglemon.cli import main, session
from eaglemon.core.hosts import HostSpec
from eaglemon.io.config import ProfileStore
from tests.cli.fake_console import FakeConsole

Prepare = Callable[[FakeConsole], None]


@dataclass(frozen=True)
class Result:
    """What one command wrote and returned."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        parsed = json.loads(self.out)
        assert isinstance(parsed, dict)
        assert parsed["schema_version"] == 1
        return parsed


class CommandLine:
    """Runs commands in this process on a fake console, in empty folders."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.prepare: Prepare = lambda _: None
        self.consoles: list[FakeConsole] = []

    @property
    def console(self) -> FakeConsole:
        return self.consoles[-1]

    @asynccontextmanager
    async def open_console(
        self, hosts: Sequence[HostSpec], profiles: ProfileStore
    ) -> AsyncIterator[Eaglemon]:
        console = FakeConsole(hosts, profiles)
        self.prepare(console)
        self.consoles.append(console)
        yield console

    def __call__(self, *arguments: str, prepare: Prepare | None = None) -> Result:
        if prepare is not None:
            self.prepare = prepare
        self._capsys.readouterr()
        code = main.run(arguments)
        out, err = self._capsys.readouterr()
        return Result(code, out, err)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders for configuration, state and project; returns the folder above them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return tmp_path


@pytest.fixture
def run(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    command_line = CommandLine(capsys)
    monkeypatch.setattr(session, "open_console", command_line.open_console)
    return command_line
