"""Record a console and look at it again: the same pictures, and nothing can be done in them."""

import asyncio
import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.app.recording import Item, Replay, read, record
from eaglemon.core.views import Snapshot
from eaglemon.errors import ConfigError, UsageError
from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.fake_console import FakeConsole


async def recorded(path: Path) -> FakeConsole:
    """Record three pictures, then leave."""
    later = replace(snapshots.FLEET, at=snapshots.AT + 1)
    fake = FakeConsole(snapshots.FLEET, log_batches=(snapshots.LOG,))
    task = asyncio.create_task(record(fake, path))
    async with asyncio.timeout(60):
        for snapshot in (snapshots.FLEET, later):
            fake.push(snapshot)
            await wait_for(path, f'"at_s":{snapshot.at - snapshots.AT}')
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return fake


async def wait_for(path: Path, text: str) -> None:
    while not path.exists() or text not in _text(path):
        await asyncio.sleep(0.05)


def _text(path: Path) -> str:
    return path.read_bytes().decode()


async def test_a_recording_is_what_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    await recorded(path)
    items = read(path)
    seen = [item.snapshot for item in items if item.snapshot is not None]
    assert [picture.at - snapshots.AT for picture in seen] == [0.0, 1.0]
    first = seen[0]
    assert first.hosts == snapshots.FLEET.hosts
    assert first.servers[1:] == snapshots.FLEET.servers[1:]
    probe = first.servers[0].probe
    assert probe is not None
    assert probe.plan.prompts == ()
    assert any(item.log for item in items)


async def test_a_replay_shows_it_on_a_console_that_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    await recorded(path)
    replay = Replay(read(path), speed=1000)
    assert replay.length_s == 1.0
    async with opened(snapshots.EMPTY, replay=replay, read_only=True) as console:
        assert "READ-ONLY" in console.text()
        assert "112.0/140.4" in console.text()
        await console.press("S")
        assert "read-only" in console.said[-1]
        console.app.settings = replace(console.app.settings, recording=True)
        await console.press("s")
        assert console.said[-1] == "this is a recording: nothing can be done in it, only looked at"
        await console.press("o", "l")
        assert "ready to roll" in console.text()


async def test_a_replay_keeps_its_pace_and_stays_at_the_end() -> None:
    pictures = [Snapshot(at=float(n)) for n in range(3)]
    items = [Item(at_s=picture.at / 100, snapshot=picture) for picture in pictures]
    replay = Replay(items, speed=10)
    seen = []
    async with asyncio.timeout(60):
        async for picture in replay.updates():
            seen.append(picture.at)
            if len(seen) == 3:
                break
    assert seen == [0.0, 1.0, 2.0]
    assert replay.snapshot().at == 2.0
    with pytest.raises(UsageError, match="this is a recording"):
        await replay.stop("x")


def test_what_is_no_recording_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with pytest.raises(ConfigError, match="cannot be read"):
        read(path)
    path.write_text("[1]\n[2]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no line of a recording"):
        read(path)
    path.write_text('{"at_s":0}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="is no recording"):
        read(path)
    path.write_text('{"header":"eaglemon recording","version":9}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="another release"):
        read(path)
    path.write_text('{"header":"eaglemon recording","version":1}\n{"at', encoding="utf-8")
    with pytest.raises(ConfigError, match="no picture in it"):
        read(path)
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress(b"nothing"))
    with pytest.raises(ConfigError, match="no line of a recording"):
        read(packed)
    packed.write_bytes(b"no gzip")
    with pytest.raises(ConfigError, match="cannot be read"):
        read(packed)


async def test_what_a_killed_console_left_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "seen.jsonl"
    await recorded(path)
    whole = read(path)
    packed = tmp_path / "seen.jsonl.gz"
    with gzip.open(packed, "wb") as file:
        for line in path.read_bytes().splitlines(keepends=True):
            file.write(line)
            file.flush()
        # No close has written the end of the stream, nor is the last block whole.
        left = packed.read_bytes()
    packed.write_bytes(left)
    assert read(packed) == whole
    packed.write_bytes(left[:-40])
    found = read(packed)
    assert found == whole[: len(found)]
    assert any(item.snapshot for item in found)


async def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    fake = FakeConsole(snapshots.FLEET)
    with pytest.raises(UsageError, match="cannot be written"):
        await record(fake, tmp_path / "no" / "where.jsonl")
