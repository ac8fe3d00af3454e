from collections.abc import Iterator

import pytest

from eaglemon.io.ssh_answers import ANSWERS
from tests.sshd import Sshd, start_sshd


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def fresh_memory() -> Iterator[None]:
    """What is remembered for the length of a process."""
    ANSWERS.clear()
    yield
    ANSWERS.clear()
