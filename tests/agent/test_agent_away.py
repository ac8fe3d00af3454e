"""What is not there now may be there later: folders that are away, supervisors that come late."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eaglemon.agent import agent
from eaglemon.io.agent_link import AgentLink
from tests.agent.driver import python, request, until

FOREVER = python("import time; time.sleep(600)")


async def test_a_run_lives_on_while_its_folder_is_away(link: AgentLink, state: Path) -> None:
    root = state / "eaglemon" / "runs"
    away = state / "eaglemon" / "away"
    await link.start_run(request("one", *FOREVER))
    two = await link.start_run(request("two", *FOREVER))
    seen = agent.Runs([str(root)], agent.read_boot_id())
    assert set(seen.refresh(0.0)) == {"one", "two"}
    root.rename(away)
    assert set(seen.refresh(0.0)) == {"one", "two"}
    assert seen.status("one", 0.0)["processes"]
    assert two.pid is not None
    os.kill(two.pid, signal.SIGKILL)
    await until(lambda: set(seen.refresh(0.0)) == {"one"})
    away.rename(root)
    await until(lambda: set(seen.refresh(0.0)) == {"one", "two"})
    assert seen.status("one", 0.0)["exit"] is None


def test_a_supervisor_that_has_not_answered_may_still_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def helper(*_: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["true"])
        process.wait()
        return process

    monkeypatch.setattr(agent, "spawn_helper", helper)
    seen = agent.Runs([str(tmp_path / "runs")], agent.read_boot_id())
    with pytest.raises(agent.RequestError) as caught:
        agent.start_run({"id": "one", "argv": ["true"]}, seen, agent.read_boot_id(), b"")
    assert caught.value.kind == "spawn-late"
    assert (tmp_path / "runs" / "one" / "run.json").exists()
