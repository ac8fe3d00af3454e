"""The agent's source: old Pythons, standard library only, and what both sides must agree on."""

import ast
import asyncio
import re
import shutil
import sys
from pathlib import Path

import pytest

from eaglemon.agent import agent
from eaglemon.core import frames
from eaglemon.io import agent_start
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import agent_pid, python, request, watched

SOURCE = Path(agent.__file__).read_text()
STANDARD = """
__future__ contextlib ctypes errno fcntl functools importlib.machinery json os pwd re select shutil
signal socket struct subprocess sys threading time types typing zlib
"""


def pythons() -> list[str]:
    """Return the other Pythons of this machine that an agent should run on."""
    found = {}
    homes = (Path.home() / ".pyenv/versions").glob("3.*/bin/python3")
    names = [shutil.which(f"python3.{minor}") for minor in range(8, 15)]
    for path in [*map(str, homes), *filter(None, names), "/usr/bin/python3"]:
        version = re.search(r"python-?(3\.\d+)|/(3\.\d+)\.", path)
        if Path(path).exists():
            found[version.group(0) if version else path] = path
    return sorted(found.values())


def test_it_parses_as_python_3_8() -> None:
    ast.parse(SOURCE, feature_version=(3, 8))


def test_it_imports_the_standard_library_only() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported <= set(STANDARD.split())


def test_both_sides_agree() -> None:
    assert agent.LOADER == agent_start.LOADER
    assert agent.MARK == frames.MARK
    assert agent.MAX_HEAD_BYTES == frames.MAX_HEAD_BYTES
    assert agent.MAX_BLOB_BYTES == frames.MAX_BLOB_BYTES
    assert not set(agent.LOADER) & set("'\"\\$`!")


@pytest.mark.parametrize("interpreter", pythons())
async def test_it_runs_on_every_python_of_this_machine(interpreter: str, state: Path) -> None:
    version = await LocalTransport().run(
        f"{interpreter} -c 'import sys; print(*sys.version_info[:2])'"
    )
    numbers = tuple(map(int, version.stdout.split()))
    link_of = AgentLink.open(
        LocalTransport(), python=interpreter, env={"XDG_STATE_HOME": str(state)}
    )
    if numbers < (3, 8):
        with pytest.raises(Exception, match="no python3"):
            await link_of
        return
    link = await link_of
    try:
        assert link.facts.python_version.split(".")[:2] == [str(number) for number in numbers]
        async with watched(link) as runs:
            await link.start_run(request("one", *python("import time; time.sleep(600)")))
            await runs.until("one", lambda run: bool(run.processes))
            await link.stop_run("one", grace_s=5.0)
            await runs.until("one", lambda run: bool(run.stop and run.stop.gone_at and run.exit))
        async for sample in link.watch_gpus():
            assert sample.driver_error
            break
    finally:
        await link.close()


async def test_it_ends_with_its_stdin(state: Path) -> None:
    process = await LocalTransport().open_process(
        agent_start.start_command(python=sys.executable, env={"XDG_STATE_HOME": str(state)})
    )
    try:
        await process.write(agent_start.start_bytes())
        assert (await process.read(len(agent.MARK))) == agent.MARK
        process.write_eof()
        async with asyncio.timeout(60.0):
            assert await process.wait() == 0
    finally:
        await process.close()


async def test_it_uses_little_memory(link: AgentLink, state: Path) -> None:
    assert link.facts.nvml_error  # the library has been loaded, or tried
    pid = agent_pid(state)
    resident_kib = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]
    assert int(resident_kib) < 30 * 1024
