"""The client on a computer that is no Linux: everything that POSIX alone has is taken away."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eaglemon.errors import HostError
from eaglemon.io.local import LocalTransport

ROOT = Path(__file__).parents[2]
# Windows lacks these modules and names. Libraries choose by platform, so only our own modules are
# kept from importing them; the names are gone for all.
WINDOWS = """
import asyncio, builtins, os, signal, sys
import asyncssh, click, httpx, msgspec, textual.app  # they look at the platform themselves
modules = {"fcntl", "pwd", "grp", "termios", "tty", "pty", "resource", "readline", "syslog"}
real = builtins.__import__

def checked(name, globals=None, *rest, **more):
    asker = (globals or {}).get("__name__", "")
    if name.partition(".")[0] in modules and asker.startswith("eaglemon"):
        raise ModuleNotFoundError(f"No module named {name!r} for {asker}")
    return real(name, globals, *rest, **more)

builtins.__import__ = checked
for name in ("killpg", "getpgid", "fork", "setsid", "getuid", "geteuid", "getgid", "uname",
             "mkfifo", "O_NONBLOCK", "O_NOCTTY", "chown", "sysconf"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGTSTP", "SIGWINCH"):
    delattr(signal, name)
"""
IMPORT_ALL = """
import importlib, pkgutil
import eaglemon
for found in pkgutil.walk_packages(eaglemon.__path__, "eaglemon."):
    if found.name.startswith("eaglemon.agent.") or found.name.endswith("__main__"):
        continue  # what runs on hosts, and what runs when imported
    importlib.import_module(found.name)
    print(found.name)
"""


def run(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WINDOWS + code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
        env={
            **os.environ,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
        },
    )


def test_every_module_of_the_client_can_be_imported(tmp_path: Path) -> None:
    done = run(IMPORT_ALL, tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {
        "eaglemon.cli.main",
        "eaglemon.app.hub",
        "eaglemon.io.local",
        "eaglemon.io.ssh",
        "eaglemon.sim.host",
        "eaglemon.tui.app",
    } <= loaded


def test_a_command_runs(tmp_path: Path) -> None:
    code = "from eaglemon.cli.main import run\nsys.exit(run(['profiles']))"
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sglang-eagle3" in done.stdout


@pytest.mark.parametrize("platform", ["win32", "darwin"])
async def test_no_host_but_linux_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    local = LocalTransport()
    monkeypatch.setattr(sys, "platform", platform)
    for ask in (
        local.connect(),
        local.open_process("true"),
        local.run("true"),
        local.open_stream("127.0.0.1", 1),
    ):
        with pytest.raises(HostError, match=f"this machine \\({platform}\\) cannot be a host"):
            await ask
