"""The log screen over a log of which all but the last lines stay on its host."""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eaglemon.agent import logscan
from eaglemon.core.log_past import LogHits, LogPlaces
from eaglemon.core.views import LogBatch
from eaglemon.errors import AgentError, LinkLostError
from eaglemon.tui.log_hits import Hits
from eaglemon.tui.log_pages import MAX_PAGES, UNREAD, LogPages
from eaglemon.tui.screens.log import LogScreen
from eaglemon.tui.widgets.whole_log import WholeLog
from tests.tui import snapshots
from tests.tui.console import Opened, opened
from tests.tui.fake_console import FakeConsole

COUNT, HERE = 60_000, 300


def line(number: int) -> str:
    minute = number // 60
    stamp = f"11-{24 + minute // 1440:02} {minute // 60 % 24:02}:{minute % 60:02}:{number % 60:02}"
    word = "Needle" if number % 9000 == 17 else "decode"
    return f"[2026-{stamp} TP0] {word} step {number + 1}"


class FilePast:
    """What a host answers about a file, by the program that runs there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads: list[tuple[int, int]] = []
        self.searched: list[tuple[int, int]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.broken: Exception | None = None

    async def places(self, until: int) -> AsyncGenerator[LogPlaces, None]:
        await self.may_answer.wait()
        if self.broken is not None:
            raise self.broken
        handle = os.open(self.path, os.O_RDONLY)
        for item in logscan.index(handle, until):
            flat = item["entries"]
            pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
            yield LogPlaces(places=pairs, read_bytes=item["read"])
        os.close(handle)

    async def search(
        self,
        text: str,
        *,
        begin: int = 0,
        until: int,
        line: int,
        most: int,
        with_texts: bool = False,
    ) -> AsyncGenerator[LogHits, None]:
        await self.may_answer.wait()
        if self.broken is not None:
            raise self.broken
        handle = os.open(self.path, os.O_RDONLY)
        self.searched.append((begin, until))
        job = {"text": text, "until": until, "line": line, "most": most, "with_texts": with_texts}
        job["from"] = begin
        for item in logscan.search(handle, {**job, "ignore_case": text.islower()}):
            numbers, texts = tuple(item["hits"]), tuple(item["texts"])
            yield LogHits(numbers=numbers, texts=texts, read_bytes=item["read"])
        os.close(handle)

    async def read(self, begin: int, end: int) -> Sequence[str]:
        self.reads.append((begin, end))
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin).decode().split("\n")[:-1]


@asynccontextmanager
async def log_of(
    tmp_path: Path, *, count: int = COUNT, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Opened, FilePast]]:
    """Open the log screen on a log whose last ``HERE`` lines come at once."""
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line(n)}\n" for n in range(count)))
    last = [line(n) for n in range(count - HERE, count)]
    end = path.stat().st_size
    batch = LogBatch(
        lines=tuple(last), next_offset=end, begin_offset=end - sum(len(x) + 1 for x in last)
    )
    past = FilePast(path)
    fake = FakeConsole(snapshots.FLEET, log_batches=(batch,), past=past)
    async with opened(snapshots.FLEET, fake=fake, size=size) as console:
        yield console, past


async def go(console: Opened, *keys: str) -> None:
    await console.press(*keys)
    await console.settle()


def log(console: Opened) -> WholeLog:
    return console.screen.query_one(WholeLog)


def title(console: Opened) -> str:
    return str(log(console).border_title)


async def test_every_line_can_be_gone_to_and_only_what_is_seen_is_fetched(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, past):
        await go(console, "l")
        assert "following, 60 000 lines" in console.text()
        assert "step 60000" in console.text()
        assert past.reads == []
        await go(console, "J", *"30000", "enter")
        assert "step 30000" in console.text()
        assert UNREAD not in console.text()
        assert "of 60 000" in console.text()
        assert log(console)._place == 29_999
        await go(console, "g")
        assert "TP0] decode step 1 " in console.text()
        assert len(past.reads) <= 4
        await go(console, "G")
        assert "step 60000" in console.text()
        await go(console, "J", *"99999999", "enter")
        await console.until_said("the log has 60 000 lines: this is the last")


async def test_a_search_goes_on_in_the_lines_on_the_host(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, _):
        await go(console, "l", "slash", *"needle", "enter")
        hits = [n for n in range(COUNT) if n % 9000 == 17]
        assert f"hit {len(hits)} of {len(hits)}" in title(console)
        assert log(console)._place == hits[-1]
        await go(console, "N", "N")
        assert log(console)._place == hits[-3]
        assert f"step {hits[-3] + 1}" in console.text()
        await go(console, "n", "n", "n")
        assert (console.said[-1], log(console)._place) == (f"hit 1 of {len(hits)}", hits[0])
        await go(console, "slash", *"nowhere", "enter")
        assert console.said[-1] == "no line contains 'nowhere'"


async def test_a_search_that_breaks_claims_nothing_and_is_begun_again(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, past):
        await go(console, "l")
        past.broken = LinkLostError("gpu-a is gone")
        await go(console, "slash", *"needle", "enter")
        assert console.said[-1] == "the earlier lines were not looked through: gpu-a is gone"
        assert not any("no line contains" in said for said in console.said)
        past.broken = None
        await go(console, "N")
        assert "hit 7 of 7" in title(console)


async def test_a_filter_takes_the_lines_on_the_host_too(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, _):
        await go(console, "l", "ampersand", *"needle", "enter")
        assert log(console).lines == [line(n) for n in range(COUNT) if n % 9000 == 17]
        await go(console, "escape")
        assert log(console).line_total == COUNT


async def test_a_time_is_gone_to(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, past):
        await go(console, "l", "J", *"11-24 05:00", "enter")
        assert log(console)._place == 5 * 3600
        assert len(past.reads) < 20
        await go(console, "J", *"03:00:05", "enter")
        # The last such time before the log's end, some sixteen hours after its begin.
        assert log(console)._place == 3 * 3600 + 5
        await go(console, "J", *"soon", "enter")
        assert console.said[-1].startswith("'soon' is neither a line nor a time")


async def test_the_deciding_line_is_gone_to_by_its_number(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, _):
        failed = snapshots.failed()
        await console.push(snapshots.only(failed))
        await go(console, "c")
        assert isinstance(console.screen, LogScreen)
        assert failed.cause is not None
        assert failed.cause.line_number is not None
        assert log(console)._place == failed.cause.line_number - 1


async def test_while_places_are_unknown_the_last_lines_are_there(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, past):
        past.may_answer.clear()
        await go(console, "l", "g")
        assert f"step {COUNT - HERE + 1}" in console.text()
        top = console.text()
        past.may_answer.set()
        await go(console)
        await console.settle()
        assert log(console).line_total == COUNT
        assert log(console).scroll_offset.y == COUNT - HERE
        assert f"step {COUNT - HERE + 1}" in top


async def test_a_host_without_python_says_so_and_keeps_the_last_lines(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, past):
        past.broken = AgentError(
            "gpu-a has no python3 to run this with", kind="no-python", hint="install python3"
        )
        await go(console, "l")
        assert "300 lines, those before cannot be read" in title(console)
        assert (
            "only the last lines of this log can be read: gpu-a has no python3" in console.said[-1]
        )
        await go(console, "slash", *f"step {COUNT - 100}", "enter")
        assert console.said[-1] == "hit 1 of 1"


async def test_lines_are_selected_and_copied(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, _):
        await go(console, "l", "J", *"1000", "enter", "v", "j", "j")
        assert "selected (y)" in console.text()
        await go(console, "y")
        copied = console.app.clipboard.split("\n")
        assert copied[0] == line(999)
        assert len(copied) == len(log(console).selected)
        assert console.said[-1].startswith("copied ")
        await go(console, "escape")
        assert not log(console).selected
        await go(console, "y")
        assert console.app.clipboard == line(999)


async def test_new_lines_and_a_new_log_are_followed(tmp_path: Path) -> None:
    async with log_of(tmp_path) as (console, past):
        await go(console, "l")
        view = log(console)
        end = past.path.stat().st_size
        with past.path.open("a") as file:
            file.writelines(f"{line(n)}\n" for n in range(COUNT, COUNT + 45_000))
        for first in range(COUNT, COUNT + 45_000, 1500):
            lines = tuple(line(n) for n in range(first, first + 1500))
            begin, end = end, end + sum(len(text) + 1 for text in lines)
            view.take(lines, begin=begin, end=end)
        await go(console, "J", *"70000", "enter")
        # It came here and has gone from here since.
        assert "step 70000" in console.text()
        await go(console, "slash", *"step 70001", "enter")
        assert "hit 1 of 1" in title(console)
        await go(console, "slash", *"needle", "enter")
        hits = [n for n in range(COUNT + 45_000) if n % 9000 == 17]
        assert f"hit {len(hits)} of {len(hits)}" in title(console)
        whole = past.searched[-1]
        more = tuple(line(n) for n in range(COUNT + 45_000, COUNT + 75_000))
        with past.path.open("a") as file:
            file.writelines(f"{text}\n" for text in more)
        for first in range(0, 30_000, 1500):
            begin, end = end, end + sum(len(text) + 1 for text in more[first : first + 1500])
            view.take(more[first : first + 1500], begin=begin, end=end)
        await go(console, "N")
        hits = [n for n in range(COUNT + 75_000) if n % 9000 == 17]
        # Only what has gone from here since is looked through, and nothing is told twice.
        assert past.searched[-1][0] == whole[1]
        assert view._hits._older == hits[::-1][2:]
        batch = LogBatch(
            lines=("other 1", "other 2"), next_offset=16, begin_offset=0, restarted=True
        )
        console.screen._take(batch)  # type: ignore[attr-defined]
        await go(console)
        assert view.line_total == 2
        assert "other 2" in console.text()


@pytest.mark.parametrize("seed", range(60))
def test_a_hit_is_only_gone_to_where_none_nearer_can_still_come(seed: int) -> None:
    dice = random.Random(seed)
    every = sorted(dice.sample(range(300), dice.randrange(1, 60)))
    first, second = sorted(dice.sample(range(1, 300), 2))
    found = Hits("x", until=first, older=True)
    for until, below in ((first, 0), (second, first)):
        if below:
            found.widen(until, 0)
        told = [n for n in reversed(every) if below <= n < until]
        while True:
            newer = [n for n in every if n >= until]
            for _ in range(20):
                place = dice.choice([None, *range(300)])
                step = dice.choice([-1, 1])
                got, _ = found.step(place, step, newer)
                before = [n for n in every if place is None or n < place]
                after = [n for n in every if place is None or n > place]
                nearest = (before[-1:] or every[-1:]) if step < 0 else (after or every)[:1]
                assert got is None or [got] == nearest
                assert got is not None or not found.done
            if found.done:
                break
            batch, told = told[:7], told[7:]
            found.add(batch, 0.5)
            if not told:
                found.end(None, newer)


def test_pages_held_are_bounded() -> None:
    pages = LogPages([(n * 65_536, n * 700) for n in range(16_384)], first=16_383 * 700)
    for page in range(0, 16_384, 7):
        pages.put(page, [f"{page} {n}" for n in range(700)])
    assert len(pages._kept) == MAX_PAGES
    assert pages.line(16_380 * 700 + 3) == "16380 3"
    assert pages.line(3) is None
    assert pages.line(16_380 * 700 + 699) == "16380 699"


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
async def test_figures_in_the_title_are_whole_or_left_out(tmp_path: Path, columns: int) -> None:
    async with log_of(tmp_path, size=(columns, 24)) as (console, _):
        console.app.open_log("run-ready")
        await go(console, "J", *"30000", "enter", "slash", *"needle", "enter", "v")
        head = console.text().splitlines()[2]
        assert "…" not in head
        parts = head.strip(" ╭╮─").removeprefix("Log ─ ").split(", ")
        whole = title(console).removeprefix("Log ─ ").split(", ")
        assert parts == whole
        assert ("hit 7 of 7" in head) is (columns >= 100)
