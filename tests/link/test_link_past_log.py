"""A log of millions of lines as it lies on a host: found, read and searched over a real link."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from eaglemon.app.keeper import Keeper
from eaglemon.app.past_log import PastLog
from eaglemon.errors import AgentError
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from eaglemon.tui.log_pages import LogPages
from tests.agent.driver import kill_all_of, linked, python, request

COUNT = 2_000_000
SIZE = COUNT * len("[2026-11-29 14:00:00 TP0] step 0000000\n") + 4 * len(" odd")
WRITER = f"""
import sys, time
for first in range(0, {COUNT}, 50000):
    sys.stdout.write("".join(
        "[2026-11-29 14:00:00 TP0] step %07d%s\\n" % (n, " odd" if n % 500000 == 7 else "")
        for n in range(first, first + 50000)
    ))
sys.stdout.flush()
time.sleep(600)
"""


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[AgentLink]:
    async with linked(LocalTransport(), tmp_path) as one:
        yield one
    kill_all_of(tmp_path)


async def test_two_million_lines_are_read_where_they_are_looked_at(link: AgentLink) -> None:
    record = await link.start_run(request("big", *python(WRITER)))
    path = Path(record.log_path)
    async with asyncio.timeout(60):
        while not path.exists() or path.stat().st_size < SIZE:
            await asyncio.sleep(0.05)
    stand_in = SimpleNamespace(id="big", record=record, host=SimpleNamespace(link=link))
    past = PastLog(cast("Keeper", stand_in))

    started = time.monotonic()
    until = await link.log_tail("big", lines=20_000)
    places = [place async for some in past.places(until) for place in some.places]
    assert places[0] == (0, 0)
    assert places[-1] == (until, COUNT - 20_000)
    pages = LogPages(places, first=places[-1][1])
    page = pages.page_of(1_000_000)
    pages.put(page, await past.read(*pages.span(page)))
    assert pages.line(1_000_000) == "[2026-11-29 14:00:00 TP0] step 1000000"
    hits = [
        number
        async for some in past.search("odd", until=until, line=places[-1][1], most=100)
        for number in some.numbers
    ]
    assert hits == [1_500_007, 1_000_007, 500_007, 7]
    assert time.monotonic() - started < 30

    os.truncate(path, 1000)
    with pytest.raises(AgentError, match="truncated or replaced"):
        await past.read(*pages.span(page))
    with pytest.raises(AgentError, match="truncated or replaced"):
        async for _ in past.places(until):
            pass
