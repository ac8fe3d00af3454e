"""Opens the console on a fake, at a fixed size and time."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from unittest.mock import patch

from textual.pilot import Pilot
from textual.screen import Screen

from eaglemon.app.api import Eaglemon, Experiments, LocalFiles
from eaglemon.core.views import LogBatch, Snapshot
from eaglemon.tui.app import ConsoleApp
from eaglemon.tui.settings import Pace
from eaglemon.tui.themed_app import ThemeSource
from tests.tui.fake_console import FakeConsole
from tests.tui.frame import frame_text

THEMES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parents[2] / "themes").glob("*.toml"))
}
AT_ONCE = Pace(refresh_s=0, tick_s=3600, check_s=0, log_s=0, themes_s=0.01)
THREAD_LIMIT_S = 60.0


@contextmanager
def counted_threads() -> Iterator[set[object]]:
    """Yield what ``asyncio.to_thread`` is at meanwhile: a busy machine takes its time for it."""
    under_way: set[object] = set()
    to_thread = asyncio.to_thread

    async def counted(
        function: Callable[..., object], /, *given: object, **named: object
    ) -> object:
        job = object()
        under_way.add(job)
        try:
            return await to_thread(function, *given, **named)
        finally:
            under_way.discard(job)

    with patch.object(asyncio, "to_thread", counted):
        yield under_way


@dataclass
class Opened:
    """A console under test."""

    app: ConsoleApp
    pilot: Pilot[None]
    fake: FakeConsole
    threads: set[object]
    """What runs in threads."""

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
        """Let messages and the first steps of workers run, and what they do in threads end."""
        for _ in range(2):
            await self.pilot.pause()
        if self.threads:
            until = time.monotonic() + THREAD_LIMIT_S
            while self.threads and time.monotonic() < until:
                await self.pilot.pause(0.01)
            await self.settle()

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
    with (
        # On a busy machine a message would be gone before it was looked at.
        patch.object(ConsoleApp, "NOTIFICATION_TIMEOUT", 3600.0),
        counted_threads() as threads,
    ):
        async with app.run_test(size=size) as pilot:
            console = Opened(app, pilot, fake, threads)
            await console.settle()
            yield console
