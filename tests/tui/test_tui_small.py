"""Below 80x24: one pane, short labels, and no figure that lost a digit."""

import re
from pathlib import Path

import pytest

from tests.tui import snapshots
from tests.tui.console import opened
from tests.tui.test_tui_draft import desk
from tests.tui.test_tui_host import with_past

CLIPPED = re.compile(r"\d…|…\d")
"""A number that was cut, or that begins in the middle."""
WALKS = {
    "fleet": (("1",), ("2",), ("i",)),
    "server": (("2", "o"), ("2",), ("3",), ("4",)),
    "host": (("h",), ("2",), ("3",)),
    "draft": (("2", "o", "d"), ("2",)),
    "dialogs": (("2", "K"), ("n", "t")),
}


@pytest.mark.parametrize("size", [(79, 23), (60, 18), (40, 12)])
@pytest.mark.parametrize("walk", WALKS)
async def test_no_figure_is_clipped(walk: str, size: tuple[int, int], tmp_path: Path) -> None:
    fake, files, _ = desk(tmp_path)
    fake.now = with_past()
    async with opened(
        fake.now, size=size, fake=fake, files=files, logs=(snapshots.LOG,)
    ) as console:
        for keys in WALKS[walk]:
            await console.press(*keys)
            rows = console.text().splitlines()
            # Lines of a log and names may be cut; figures may not.
            if keys[-1] != "4":
                assert [row for row in rows if CLIPPED.search(row)] == []
            assert max(map(len, rows)) <= size[0]
            assert len(rows) == size[1]
            borders = [row for row in rows if row.lstrip().startswith("╭")]
            assert len(borders) <= 3


async def test_a_probe_and_a_stop_come_into_sight() -> None:
    async with opened(snapshots.FLEET, size=(80, 24)) as console:
        await console.press("2", "o", "t", "ctrl+s")
        assert "Throughput" in console.text()
        await console.press("K", "y")
        assert "Start-up ─" in console.text()
    async with opened(snapshots.FLEET, size=(200, 50)) as console:
        await console.press("o", "t", "ctrl+s")
        assert "Start-up ─" in console.text()
