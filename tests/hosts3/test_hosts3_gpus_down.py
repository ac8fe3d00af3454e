"""``gpus`` on hosts that are away: said once, ages go on, nothing is promised that will not be."""

import asyncio
import os
import pty
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.cli.gpus import _host_lines
from eaglemon.core.hosts import HostFacts, HostSample, HostSpec, LinkState
from eaglemon.core.views import HostView, Snapshot
from eaglemon.tui.news import news
from tests.hosts3.test_hosts3_cli import eaglemon, hosts_file

LIMIT_S = 60.0
SAMPLE = HostSample(at=100.0)
FACTS = HostFacts(
    hostname="a",
    user="me",
    uid=1,
    agent_protocol=1,
    boot_id="b",
    state_dir="/s",
    python_version="3.12",
    driver_version="580.1",
)


def host(state: LinkState, **more: object) -> HostView:
    view = HostView(spec=HostSpec(name="a"), state=state, sample=SAMPLE, facts=FACTS)
    return replace(view, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [LinkState.STALE, LinkState.DOWN, LinkState.CONNECTING])
def test_values_that_are_not_current_tell_their_age(state: LinkState) -> None:
    (first, *_) = _host_lines(host(state, sample_age_s=8.2), (), past=True)
    assert f"a: {state}, values are 8.2 s old" in first


def test_what_a_narrow_terminal_cuts_is_the_reason() -> None:
    view = host(LinkState.DOWN, sample_age_s=8.2, next_try_s=3.1, detail="why " * 40)
    (first, *_) = _host_lines(view, (), past=True)
    assert first.startswith("a: down, values are 8.2 s old, next try in 3.1 s, driver 580.1, why")


def test_a_host_without_gpus_says_so() -> None:
    assert _host_lines(host(LinkState.UP), (), past=False)[1] == "  no GPUs"
    broken = host(LinkState.UP, sample=replace(SAMPLE, driver_error="mismatch"))
    assert "  no GPUs" not in _host_lines(broken, (), past=False)


async def test_a_look_says_once_why_a_host_is_down(tmp_path: Path) -> None:
    config = hosts_file(tmp_path, gone={"address": "127.0.0.1", "port": 1, "ssh_config": ""})
    out, err = await eaglemon(config, "gpus", "gone", code=3)
    assert out == "gone: down\n"
    assert err.count("gone") == 1
    assert "127.0.0.1:1 refused the connection; see whether sshd runs there" in err
    out, _ = await eaglemon(config, "gpus", "gone", "--json", code=3)
    assert '"next_try_s": null' in out


async def test_a_watcher_sees_time_pass_while_a_host_is_down(tmp_path: Path) -> None:
    config = hosts_file(tmp_path, gone={"address": "127.0.0.1", "port": 1, "ssh_config": ""})
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "eaglemon", "--config", str(config), "gpus", "gone", "--watch",
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    os.set_blocking(ours, False)
    seen, waits = b"", set[bytes]()
    try:
        async with asyncio.timeout(LIMIT_S):
            # The third pause is of about four seconds: they are counted down.
            while len(waits) < 5:
                await asyncio.sleep(0.1)
                try:
                    seen += os.read(ours, 65536)
                except BlockingIOError:
                    continue
                waits |= {part.split(b" s")[0] for part in seen.split(b"next try in ")[1:]}
    finally:
        process.kill()
        await process.wait()
        os.close(ours)


def test_a_host_that_stays_down_is_told_once() -> None:
    def told(before: HostView, after: HostView) -> list[str]:
        views = (Snapshot(at=1.0, hosts=(before,)), Snapshot(at=2.0, hosts=(after,)))
        return [one.text for one in news(*views)]

    up, down = host(LinkState.UP), host(LinkState.DOWN, detail="refused; see sshd")
    again = host(LinkState.CONNECTING, detail="refused; see sshd")
    assert told(up, down) == ["a is down: refused; see sshd"]
    assert told(down, again) == []
    assert told(again, down) == []
    assert told(again, replace(down, detail="silent")) == ["a is down: silent"]
    assert told(again, up) == ["a is back"]
    assert told(replace(again, facts=None, detail=""), up) == []
    assert told(host(LinkState.DEGRADED), up) == []
