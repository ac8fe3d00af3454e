"""Hosts whose clock is wrong, and homes whose name a login shell has spoilt."""

import os
import pwd
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from eaglemon.agent import agent
from eaglemon.app.gpu_watch import GpuWatch
from eaglemon.app.host import Host
from eaglemon.core.hosts import HostSample, HostSpec
from eaglemon.io.clock import SystemClock
from eaglemon.io.connect import transport_to
from eaglemon.io.local import LocalTransport
from eaglemon.io.shell_host import ShellLink
from tests.hosts3.shell_host import Smi, sample_when, shell_link

AHEAD_S = 100.0


def test_the_time_of_a_sample_is_shown_by_this_clock() -> None:
    spec = HostSpec(name="gpu-a")
    watch = GpuWatch((), connect=transport_to)
    host = Host(spec, connect=transport_to, listener=watch, clock=SystemClock())
    host.clock_offset_s = AHEAD_S
    host.take(HostSample(at=1000.0 + AHEAD_S))
    shown = host.view().sample
    assert shown is not None
    assert shown.at == 1000.0


async def test_samples_of_nvidia_smi_have_the_time_of_their_host(tmp_path: Path) -> None:
    smi = Smi(tmp_path / "smi")
    date = smi.folder / "date"
    date.write_text(f"#!/bin/sh\necho $(($(/bin/date +%s) + {AHEAD_S:.0f})).000000000\n")
    date.chmod(0o755)
    before = time.time()
    async with shell_link(tmp_path / "state", smi.env) as link:
        await link.ping()
        sample = await sample_when(link, lambda one: True)
    # Its date(1) tells whole seconds.
    assert before - 2.0 < sample.at - AHEAD_S < time.time() + 2.0


@pytest.mark.parametrize(("told", "kept"), [("/home/h\ufffdm", False), ("", False), ("own", True)])
def test_a_home_whose_letters_were_spoilt_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, kept: bool
) -> None:
    home = tmp_path / "höme"
    home.mkdir()
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(home)))
    monkeypatch.setenv("HOME", str(own) if kept else told)
    agent.mend_home()
    assert os.environ["HOME"] == str(own if kept else home)


def test_a_home_of_plain_letters_is_left_to_whoever_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "not-made-yet"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(tmp_path)))
    agent.mend_home()
    assert os.environ["HOME"] == str(tmp_path / "not-made-yet")


async def test_sh_looks_a_spoilt_home_up_as_well(tmp_path: Path) -> None:
    home = tmp_path / "höme"
    home.mkdir()
    getent = tmp_path / "bin" / "getent"
    getent.parent.mkdir()
    getent.write_text(f"#!/bin/sh\necho 'me:x:0:0::{home}:/bin/fish'\n")
    getent.chmod(0o755)
    env = {"PATH": f"{getent.parent}:{os.environ['PATH']}", "HOME": "/home/h\ufffdme"}
    link = await ShellLink.open(LocalTransport(), env={**env, "XDG_STATE_HOME": ""})
    assert link.facts.state_dir == str(home / ".local/state/eaglemon")
