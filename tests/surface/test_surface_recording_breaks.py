"""A recording that cannot be written any further is told at once and costs nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from eaglemon.app.late import LateConsole
from eaglemon.app.local_files import ConfigFiles
from eaglemon.app.recording import record
from eaglemon.cli import experiment_session, session, tui
from eaglemon.errors import UsageError
from eaglemon.io.config import ProfileStore
from eaglemon.tui.app import ConsoleApp
from tests.tui import snapshots
from tests.tui.fake_console import FakeConsole

FULL = Path("/dev/full")
"""Linux's disk without room: it can be opened, and every write fails."""


@pytest.mark.parametrize("name", ["seen.jsonl", "seen.jsonl.gz"])
async def test_a_full_disk_ends_a_recording_in_words(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.symlink_to(FULL)
    with pytest.raises(UsageError, match=r"seen.*: cannot be written: no space left on device"):
        await record(FakeConsole(snapshots.FLEET), path)


class StandIn:
    """What the services need of the console's application."""

    def __init__(self) -> None:
        self.drawn, self.leaving = asyncio.Event(), asyncio.Event()
        self.drawn.set()
        self.told: list[str] = []
        self.was_told = asyncio.Event()

    def load_actions(self) -> None:
        pass

    def take_experiments(self, experiments: object) -> None:
        del experiments

    def tell_end(self, text: str, *, severity: str) -> None:
        assert severity == "error"
        self.told.append(text)
        self.was_told.set()


class Experiments:
    """Notes that it was closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("breaks", [OSError, ZeroDivisionError])
async def test_it_is_told_when_it_happens_and_experiments_are_ended_all_the_same(
    breaks: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiments, app = Experiments(), StandIn()

    @asynccontextmanager
    async def console_on(*_: object, **__: object) -> AsyncIterator[FakeConsole]:
        yield FakeConsole(snapshots.FLEET)

    @asynccontextmanager
    async def experiments_on(_: object) -> AsyncIterator[Experiments]:
        yield experiments

    def broken(*_: Any) -> None:
        raise breaks("no luck")

    monkeypatch.setattr(session, "open_console", console_on)
    monkeypatch.setattr(experiment_session, "open_experiments", experiments_on)
    if breaks is not OSError:
        monkeypatch.setattr("eaglemon.app.recording._write", broken)
    files = ConfigFiles(lambda: ProfileStore.load(config=None))
    work = tui._open(LateConsole(()), cast("ConsoleApp", app), files, FULL)
    opening = asyncio.create_task(work)
    async with asyncio.timeout(60):
        await app.was_told.wait()
        app.leaving.set()
        await asyncio.wait({opening})
    assert app.told[0].startswith("nothing is recorded any more: ")
    assert experiments.closed
    assert (opening.exception() is None) is (breaks is OSError)
