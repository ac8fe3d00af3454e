"""Programs that the agent runs for the console: their items, failures and ends."""

import asyncio
import os
import signal
import sys
from collections import deque
from contextlib import aclosing
from pathlib import Path

import pytest

from eaglemon.core.frames import Frame
from eaglemon.errors import AgentError, LinkLostError
from eaglemon.io import agent_link
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalTransport
from tests.agent.driver import agent_pid, is_alive, linked, until
from tests.agent.test_agent_source import pythons

LASTING = b"""
import json, os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(json.dumps({"pids": [os.getpid(), child.pid]}), flush=True)
time.sleep(600)
"""


async def run(link: AgentLink, source: bytes, **arguments: object) -> list[object]:
    async with asyncio.timeout(60):
        return [item async for item in link.run_program(source, **arguments)]  # type: ignore[arg-type]


async def test_items_input_and_arguments(link: AgentLink) -> None:
    source = b"""
import json, os, sys
given = json.loads(EAGLEMON_INPUT)
print("talk that is no item")
print(json.dumps({"argv": sys.argv[1:], "given": given, "name": __name__}))
print(json.dumps({"session": os.getsid(0) == os.getpid(), "cwd": os.getcwd()}))
"""
    given = {"prompts": ["\u2028 \U0001f985", "x" * 300_000], "none": None}

    items = await run(link, source, argv=("a", "b c"), input=given)

    assert items == [
        {"argv": ["a", "b c"], "given": given, "name": "__main__"},
        {"session": True, "cwd": "/"},
    ]


async def test_a_long_answer_arrives_whole(link: AgentLink) -> None:
    source = b"import json\nfor i in range(3000): print(json.dumps({'i': i, 'x': 'y' * 1000}))"

    items = await run(link, source)

    assert [item["i"] for item in items] == list(range(3000))  # type: ignore[index]


async def test_a_program_is_no_more_than_a_window_ahead_of_its_reader(
    link: AgentLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    window, sizes = 200_000, [0]

    def noted(frames: deque[Frame], frame: Frame) -> None:
        frames.append(frame)
        sizes.append(sum(one.head_bytes for one in frames))

    monkeypatch.setattr(agent_link, "PROGRAM_WINDOW_BYTES", window)
    monkeypatch.setattr(agent_link, "keep_all", noted)
    source = b"import json\nfor i in range(3000): print(json.dumps({'i': i, 'x': 'y' * 1000}))"
    async with asyncio.timeout(60), aclosing(link.run_program(source)) as items:
        numbers = [(await anext(items))["i"]]
        while sizes[-1] < window - 5000:
            await asyncio.sleep(0.01)
        for _ in range(20):  # time for more, if more were sent
            await link.ping()
        numbers += [item["i"] async for item in items]
    assert numbers == list(range(3000))
    assert max(sizes) < window + 5000


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"raise ValueError('no such thing')", "status 1.*ValueError: no such thing"),
        (b"import sys; print('said'); sys.exit(3)", "status 3: said"),
        (b"def broken(:", "SyntaxError"),
        (b"import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "SIGTERM"),
    ],
)
async def test_a_failure_is_told_with_its_last_words(
    link: AgentLink, source: bytes, words: str
) -> None:
    with pytest.raises(AgentError, match=f"(?s){words}") as caught:
        await run(link, source)
    assert caught.value.kind == "program-failed"


async def test_an_interpreter_that_is_not_there(link: AgentLink) -> None:
    with pytest.raises(AgentError, match="cannot start /nowhere/python") as caught:
        await run(link, b"", python="/nowhere/python")
    assert caught.value.kind == "spawn-failed"


async def test_a_named_python_keeps_its_packages(link: AgentLink) -> None:
    source = b"import sys, json, pytest; print(json.dumps({'prefix': sys.prefix}))"

    assert await run(link, source, python=sys.executable) == [{"prefix": sys.prefix}]


async def test_leaving_the_stream_kills_it_and_what_it_started(link: AgentLink) -> None:
    async with asyncio.timeout(60), aclosing(link.run_program(LASTING)) as items:
        item = await anext(items)
    pids = item["pids"]
    assert isinstance(pids, list)
    await until(lambda: not any(map(is_alive, pids)))
    assert await link.ping() > 0


async def test_it_dies_with_the_link(state: Path) -> None:
    async with linked(LocalTransport(), state) as link, asyncio.timeout(60):
        items = link.run_program(LASTING)
        pids = (await anext(items))["pids"]
        assert isinstance(pids, list)
        await link.close()
        with pytest.raises(LinkLostError):
            await anext(items)
    await until(lambda: not any(map(is_alive, pids)))


async def test_it_dies_with_a_killed_agent(state: Path) -> None:
    async with linked(LocalTransport(), state) as link, asyncio.timeout(60):
        agent = agent_pid(state)
        items = link.run_program(LASTING)
        pids = (await anext(items))["pids"]
        assert isinstance(pids, list)
        os.kill(agent, signal.SIGKILL)
        with pytest.raises(LinkLostError):
            await anext(items)
    await until(lambda: not any(map(is_alive, pids)))


# Shims look at the working folder to choose a Python, and programs run in /.
@pytest.mark.parametrize("interpreter", [path for path in pythons() if "shims" not in path])
async def test_it_runs_on_every_python_of_this_machine(link: AgentLink, interpreter: str) -> None:
    source = b"import json; print(json.dumps({'given': json.loads(EAGLEMON_INPUT)}))"

    assert await run(link, source, python=interpreter, input=[1]) == [{"given": [1]}]
