"""A restart is not broken off by another key, and whoever leaves meanwhile is told of it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.core.views import ServerState, Told
from eaglemon.errors import HostError
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import FakeConsole
from tests.tui.fake_drafts import FakeDrafts
from tests.tui.test_tui_files import fakes


class SlowStop(FakeConsole):
    """The old server takes its time; what was broken off in between is noted."""

    def __init__(self) -> None:
        super().__init__(snapshots.FLEET)
        self.gone = asyncio.Event()
        self.broken_off = False
        self.error: HostError | None = None

    async def restart(
        self, server_id: str, *, grace_s: float | None = None, told: Told = None
    ) -> str:
        self.calls.append(("restart", server_id, grace_s))
        try:
            await self.gone.wait()
        except asyncio.CancelledError:
            self.broken_off = True
            raise
        if self.error is not None:
            raise self.error
        return f"{server_id}-again"


async def test_no_other_key_breaks_off_the_restart_after_a_rewiring(tmp_path: Path) -> None:
    fake = SlowStop()
    _, files = fakes(tmp_path)
    files.desk = FakeDrafts()
    async with opened(snapshots.FLEET, fake=fake, files=files) as console:
        await console.press("o", "d", "D", "y")
        await console.settle()
        await console.press("f")
        await console.settle()
        await console.press("y")
        await console.settle()
        assert console.called("restart") == [("restart", "run-ready", None)]
        for key in ("D", "f", "R"):
            await console.press(key)
            assert (
                console.said[-1]
                == "k25-eagle3 is being restarted: wait for it, or call that off with x"
            )
        assert not fake.broken_off
        new = replace(snapshots.ready(), id="run-ready-again")
        fake.push(replace(fake.now, servers=(*fake.now.servers, new)))
        fake.gone.set()
        await console.until_said("k25-eagle3 is ready; probing it")
        assert console.app.unfinished() == ()


@pytest.mark.parametrize("keys", [("x",), ("S", "y"), ("K", "y")])
async def test_a_restart_can_be_called_off(keys: tuple[str, ...]) -> None:
    fake = SlowStop()
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("o", "R", "y")
        assert "x call off restart" in console.text()
        await console.press(*keys)
        await console.until_said("the restart of k25-eagle3 is called off: it stays stopped")
        assert fake.broken_off
        assert console.app.unfinished() == ()
        assert bool(console.called("stop")) is (keys != ("x",))


async def test_between_its_end_and_the_new_start_nothing_is_asked_first() -> None:
    fake = SlowStop()
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("o", "R", "y")
        ended = replace(snapshots.ready(), state=ServerState.STOPPED, pids=())
        servers = (ended, *fake.now.servers[1:])
        await console.push(replace(fake.now, servers=servers))
        await console.press("S")
        await console.until_said("the restart of k25-eagle3 is called off: it stays stopped")
        assert fake.broken_off
        assert console.called("stop") == []


async def test_one_that_was_begun_meanwhile_is_stopped() -> None:
    fake = SlowStop()
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("o", "R", "y")
        new = replace(snapshots.ready(), id="run-ready-again", state=ServerState.SPAWNING)
        await console.push(replace(fake.now, servers=(*fake.now.servers, new)))
        await console.press("x")
        assert not fake.broken_off
        fake.gone.set()
        await console.until_said("the restart of k25-eagle3 is called off: it stays stopped")
        assert console.called("stop") == [("stop", "run-ready-again", None, False)]


async def test_leaving_in_the_middle_of_a_restart_asks_first() -> None:
    fake = SlowStop()
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("o", "R", "y", "q")
        assert not console.app.leaving.is_set()
        told = "a restart of k25-eagle3 is under way: q again may leave it stopped"
        assert console.said[-1] == told
        await console.press("q")
        assert console.app.leaving.is_set()
    assert fake.broken_off
    # Told once more on the terminal, where a key that does not ask was pressed too.
    assert console.app.unfinished() == ("k25-eagle3",)


@pytest.mark.parametrize("error", [None, HostError("h200-a is away")])
async def test_after_a_restart_the_console_is_left_at_once(error: HostError | None) -> None:
    fake = SlowStop()
    fake.error = error
    async with opened(snapshots.FLEET, fake=fake) as console:
        await console.press("o", "R", "y")
        fake.gone.set()
        await console.until_said(
            f"restarting k25-eagle3: {error}" if error else "k25-eagle3 is gone and starts again"
        )
        await console.press("q")
        assert console.app.leaving.is_set()
