from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import Runs, kill_all_of, linked, watched


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir()
    yield folder
    kill_all_of(folder)


@pytest.fixture
async def link(state: Path) -> AsyncIterator[AgentLink]:
    async with linked(LocalTransport(), state) as one:
        yield one


@pytest.fixture
async def runs(link: AgentLink) -> AsyncIterator[Runs]:
    async with watched(link) as one:
        yield one
