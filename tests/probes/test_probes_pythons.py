"""The load generator on every Python of this machine that a host may have."""

import asyncio
import json
from pathlib import Path

import pytest

from eaglemon.agent import loadgen
from eaglemon.io.local import LocalTransport
from tests.agent.driver import linked
from tests.agent.test_agent_source import pythons
from tests.probes.scripted_server import ScriptedServer, good

# Shims look at the working folder to choose a Python, and programs run in /.
OTHERS = ("shims", "/3.6.", "/3.7.")
PYTHONS = [path for path in pythons() if not any(part in path for part in OTHERS)]


@pytest.mark.parametrize("interpreter", PYTHONS)
async def test_it_runs(interpreter: str, tmp_path: Path) -> None:
    source = Path(loadgen.__file__).read_bytes()
    async with (
        asyncio.timeout(90),
        ScriptedServer(lambda _: good(1, 4, 6, gap_s=0.01)) as server,
        linked(LocalTransport(), tmp_path) as link,
    ):
        job = {
            "address": "127.0.0.1",
            "port": server.port,
            "authority": f"127.0.0.1:{server.port}",
            "headers": {"Authorization": "Bearer k"},
            "users": 2,
            "method": "POST",
            "path": "/generate",
            "template": json.dumps({"text": "@@", "stream": True}),
            "mark": "@@",
            "texts": ['say "\u00e9"\n'],
            "requests": [[number, f"[{number}] ", 0] for number in range(4)],
            "count_paths": [["meta_info", "completion_tokens"]],
            "request_limit_s": 5.0,
            "connect_limit_s": 5.0,
            "duration_s": None,
        }
        items = [item async for item in link.run_program(source, input=job, python=interpreter)]

    requests = [item["request"] for item in items if "request" in item]
    assert sorted(one["number"] for one in requests) == [0, 1, 2, 3]  # type: ignore[index]
    for one in requests:
        assert isinstance(one, dict)
        assert one["status"] == 200
        assert one["error"] is None
        assert [event[1] for event in one["events"]] == [1, 4, 6, None]
        assert one["events"][-1][2] == "[DONE]"
    assert "end" in items[-1]
    assert {one["text"] for one in server.generations} == {
        f'[{number}] say "\u00e9"\n' for number in range(4)
    }
    assert server.connections == 2
