"""Opens the console on a fake, at a fixed size and time."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from textual.pilot import Pilot
from textual.screen import Screen

from eaglemon.app.api import Eaglemon, Experiments, LocalFiles
from eaglemon.core.views import LogBatch, Snapshot
from eaglemon.tui.app import ConsoleApp, ThemeSource
from eaglemon.tui.settings import Pace
from tests.tui.fake_console import FakeConsole
from tests.tui.frame import frame_text

THEMES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parents[2] / "themes").glob("*.toml"))
}
AT_ONCE = Pace(refresh_s=0, tick_s=3600, check_s=0, log_s=0, themes_s=0.01)


@dataclass
class Opened:
    """A console under test."""

    app: ConsoleApp
    pilot: Pilot[None]
    fake: FakeConsole

    async def press(self, *keys: str) -> None:
        """Press keys, each after the one before was dealt with."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def push(self, snapshot: Snapshot) -> None:
        """Let the console see ``snapshot``."""
        self.fake.push(snapshot)
        await self.settle()

    async def settle(self) -> None:
        """Let messages and the first steps of workers run."""
        for _ in range(2):
            await self.pilot.pause()

    @property
    def screen(self) -> Screen[object]:
        return self.app.screen

    @property
    def said(self) -> list[str]:
        """All messages so far."""
        return [notification.message for notification in self.app._notifications]

    async def until_said(self, text: str) -> None:
        """Wait for a message that something in the background says."""
        deadline = time.monotonic() + 60
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            await self.pilot.pause(0.02)

    def text(self) -> str:
        return frame_text(self.app)

    def called(self, name: str) -> list[tuple[object, ...]]:
        return [call for call in self.fake.calls if call[0] == name]


@asynccontextmanager
async def opened(
    snapshot: Snapshot,
    *,
    size: tuple[int, int] = (120, 40),
    theme: str | None = None,
    themes: dict[str, str] | None = None,
    read_only: bool = False,
    logs: tuple[LogBatch, ...] = (),
    fake: FakeConsole | None = None,
    replay: Eaglemon | None = None,
    experiments: Experiments | None = None,
    files: LocalFiles | None = None,
    theme_source: ThemeSource | None = None,
    ascii_only: bool = False,
    first_run: bool = False,
) -> AsyncIterator[Opened]:
    """Run the console on ``snapshot``."""
    fake = fake or FakeConsole(snapshot, log_batches=logs)
    app = ConsoleApp(
        replay or fake,
        experiments=experiments,
        files=files,
        theme_source=theme_source,
        ascii_only=ascii_only,
        first_run=first_run,
        themes=THEMES if themes is None else themes,
        theme=theme,
        read_only=read_only,
        zone=UTC,
        pace=AT_ONCE,
    )
    # On a busy machine a message would be gone before it was looked at.
    app.NOTIFICATION_TIMEOUT = 3600.0
    # However slow the machine is, what was said can still be read.
    app.NOTIFICATION_TIMEOUT = 3600
    async with app.run_test(size=size) as pilot:
        console = Opened(app, pilot, fake)
        await console.settle()
        yield console
