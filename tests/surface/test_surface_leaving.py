"""Leaving the console in a real terminal: at once, and with the terminal as it was."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT_S = 90.0
"""Of each wait. Promised are 0.2 s (``benchmarks/`` has the figures), and this computer may be
busy; the host that hangs does so for ever."""


class Session:
    """The console in a tmux session of its own."""

    def __init__(self, folder: Path, socket_folder: Path) -> None:
        self._folder = folder
        self._tmux = ["tmux", "-S", str(socket_folder / "tmux"), "-f", "/dev/null"]
        settings = {
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
            "LANG": "C.UTF-8",
            "TERM": "screen-256color",
        }
        # readline, where pytest has loaded it, has put its own idea of a size into the environment.
        own = ("COLUMNS", "LINES", "LC_ALL", "LC_CTYPE", "EAGLEMON_ASCII", "NO_COLOR")
        words = ["env", *(word for name in own for word in ("-u", name))]
        words += [f"{name}={value}" for name, value in settings.items()]
        line = shlex.join([*words, sys.executable, "-m", "eaglemon", "tui", "local"])
        line += "; echo left with $?; sleep 600"
        self.run("new-session", "-d", "-x", "120", "-y", "40", line)

    def run(self, *words: str) -> str:
        return subprocess.run(
            [*self._tmux, *words], check=True, capture_output=True, text=True
        ).stdout

    def wait(self, text: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while text not in (seen := self.run("capture-pane", "-p")):
            assert time.monotonic() < deadline, f"{text!r} did not show:\n{seen}"
            time.sleep(0.02)

    def terminal(self) -> tuple[str, bool]:
        """Return tmux's word on the modes, and whether the line is edited by the system again."""
        modes = "#{alternate_on} #{mouse_any_flag} #{cursor_flag}"
        tty = self.run("display", "-p", "#{pane_tty}").strip()
        told = subprocess.run(["stty", "-F", tty, "-a"], check=True, capture_output=True, text=True)
        words = told.stdout.replace(";", " ").split()
        return self.run("display", "-p", modes).strip(), {"icanon", "echo"} <= set(words)

    def agents(self) -> list[int]:
        """Return the agents that this console has started."""
        mark = f"XDG_STATE_HOME={self._folder / 'state'}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                name = (entry / "comm").read_text().strip()
                if name == "eaglemon-agent" and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


@pytest.fixture
def console(tmp_path: Path, socket_folder: Path) -> Iterator[Session]:
    """Open a console and wait until its host is there."""
    session = Session(tmp_path, socket_folder)
    try:
        session.wait("s ago")
        yield session
    finally:
        session.run("kill-server")


def test_the_terminal_is_as_it_was(console: Session) -> None:
    assert console.terminal() == ("1 1 0", False)
    console.run("send-keys", "q")
    console.wait("left with 0")
    assert console.terminal() == ("0 0 1", True)


def test_a_host_that_hangs_holds_up_nothing(console: Session) -> None:
    agents = console.agents()
    assert len(agents) == 1
    os.kill(agents[0], signal.SIGSTOP)
    console.wait("STALE")
    console.run("send-keys", "?")
    console.wait("Probe the server")
    console.run("send-keys", "Escape")
    console.wait("no servers yet")
    console.run("send-keys", "q")
    console.wait("left with 0")
    deadline = time.monotonic() + LIMIT_S
    while left := console.agents():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_a_broken_profile_is_told_in_the_console_and_after_it(
    tmp_path: Path, socket_folder: Path
) -> None:
    folder = tmp_path / "config" / "eaglemon" / "profiles"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text("port = nothing\n", encoding="utf-8")
    session = Session(tmp_path, socket_folder)
    try:
        session.wait("1 problem in profiles")
        session.run("send-keys", "q")
        session.wait("left with 0")
        session.wait("eaglemon: warning:")
    finally:
        session.run("kill-server")
