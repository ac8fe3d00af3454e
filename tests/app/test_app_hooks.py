"""Hooks that leave something running, that take too long, and that write a lot."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest

from eaglemon.app.hooks import run_hooks
from eaglemon.core.profiles import Limits, Profile
from eaglemon.errors import ServerError
from eaglemon.io.host_link import HostLink

LIMIT_S = 30.0


class Programs:
    """Runs programs as the agent of a host does, in a process of this machine."""

    async def run_program(self, source: bytes, *, input: object) -> AsyncIterator[object]:  # noqa: A002
        given = f"EAGLEMON_INPUT = {json.dumps(input)!r}\n".encode()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", given + source), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                yield json.loads(line)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def run(folder: Path, *lines: str, limit_s: float = 600.0) -> None:
    limits = Limits(hook_s=limit_s)
    profile = Profile(
        name="p", engine="sglang", model="m", port=30000, workdir=str(folder), limits=limits
    )
    async with asyncio.timeout(LIMIT_S):
        await run_hooks(cast("HostLink", Programs()), profile, lines)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """Name the file that a hook writes the PID of its daemon to, and end that."""
    path = tmp_path / "pid"
    yield path
    os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("start", ["sleep 600", "nohup sleep 600", "setsid sleep 600"])
async def test_a_daemon_that_a_hook_leaves_goes_on_and_is_not_waited_for(
    tmp_path: Path, daemon: Path, start: str
) -> None:
    await run(tmp_path, f"{start} & echo $! > {daemon}", f"kill -0 $(cat {daemon})")
    os.kill(int(daemon.read_text()), 0)


async def test_what_is_late_is_killed_whoever_holds_its_output(
    tmp_path: Path, daemon: Path
) -> None:
    line = f"setsid sleep 600 & echo $! > {daemon}; echo a word; sleep 600"
    with pytest.raises(ServerError, match=r"was killed after 5 s: a word"):
        await run(tmp_path, line, limit_s=5.0)
    os.kill(int(daemon.read_text()), 0)


async def test_the_end_of_much_output_is_told(tmp_path: Path) -> None:
    line = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end >&2; exit 3"
    with pytest.raises(ServerError, match=r"ended with exit code 3: x+\nthe end$"):
        await run(tmp_path, line)
