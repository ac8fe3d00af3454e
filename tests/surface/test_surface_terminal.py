"""The console in a real terminal (tmux): keys, resizing, another program in between, leaving."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LIMIT_S = 90.0


class Terminal:
    """A tmux session of its own."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]

    def start(self, argv: list[str], environment: dict[str, str]) -> None:
        settings = [f"{name}={value}" for name, value in environment.items()]
        # What a machine says of its own language is not what these terminals speak.
        own = ("LC_ALL", "LC_CTYPE", "COLUMNS", "LINES", "EAGLEMON_ASCII", "NO_COLOR")
        plain = ["env", *(word for name in own for word in ("-u", name))]
        line = shlex.join([*plain, *settings, *argv]) + "; echo left with $?; sleep 600"
        self.command(line)

    def command(self, line: str) -> None:
        """Begin with a command of a shell."""
        self._run("new-session", "-d", "-x", "120", "-y", "40", line)

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def wait(self, text: str) -> str:
        """Wait until ``text`` is on the screen and return the screen."""
        deadline = time.monotonic() + LIMIT_S
        while text not in (seen := self.text()):
            assert time.monotonic() < deadline, f"{text!r} did not show:\n{seen}"
            time.sleep(0.05)
        return seen

    def end(self) -> None:
        self._run("kill-server")

    def _run(self, *words: str) -> str:
        return subprocess.run(
            [*self._tmux, *words], check=True, capture_output=True, text=True
        ).stdout


Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path, socket_folder: Path) -> Iterator[Start]:
    """Open a console in a terminal, in folders of its own."""
    terminal = Terminal(socket_folder / "tmux")
    environment = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "screen-256color",
    }

    def started(*words: str, **more: str) -> Terminal:
        argv = [sys.executable, "-m", "eaglemon", *words]
        terminal.start(argv, {**environment, **more})
        return terminal

    yield started
    terminal.end()


def test_type_resize_and_leave(start: Start) -> None:
    terminal = start("tui", "local")
    terminal.wait("Hosts and GPUs")
    terminal.keys("?")
    terminal.wait("esc closes")
    for columns, rows in ((80, 24), (60, 18), (200, 50), (40, 10), (120, 40)):
        terminal.resize(columns, rows)
        time.sleep(0.05)
    terminal.keys("Escape")
    seen = terminal.wait("q quit")
    assert all(len(line) <= 120 for line in seen.splitlines())
    terminal.resize(80, 24)
    terminal.wait("1 Hosts")
    terminal.keys("h")
    terminal.wait("1 GPUs")
    terminal.keys("Escape")
    terminal.wait("1 Hosts")
    terminal.keys("q")
    terminal.wait("left with 0")


def test_another_program_edits_a_profile_and_the_console_comes_back(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "config" / "eaglemon" / "profiles"
    folder.mkdir(parents=True)
    profile = folder / "aaa-mine.toml"
    profile.write_text('extends = "sglang-eagle3"\nport = 31000\n', encoding="utf-8")
    editor = tmp_path / "editor"
    editor.write_text(
        "#!/bin/sh\necho the editor has the terminal\nread answer\necho 'port = nothing' > $1\n",
        encoding="utf-8",
    )
    editor.chmod(0o755)
    terminal = start("tui", "local", EDITOR=str(editor))
    terminal.wait("Hosts and GPUs")
    terminal.keys("P")
    terminal.wait("aaa-mine")
    terminal.keys("e")
    terminal.wait("the editor has the terminal")
    terminal.keys("Enter")
    terminal.wait("problem in profiles")
    terminal.keys("q")
    terminal.wait("left with 0")


@pytest.mark.parametrize(
    ("editor", "told"),
    [
        ("nosucheditor", "nosucheditor: no such"),
        ("/etc/passwd", "/etc/passwd: permission"),
        ("vi 'unclosed", "no closing"),
    ],
)
def test_an_editor_that_cannot_be_started_leaves_the_console_alive(
    start: Start, tmp_path: Path, editor: str, told: str
) -> None:
    folder = tmp_path / "config" / "eaglemon" / "profiles"
    folder.mkdir(parents=True)
    (folder / "aaa-mine.toml").write_text('extends = "sglang-eagle3"\n', encoding="utf-8")
    terminal = start("tui", "local", EDITOR=editor)
    terminal.wait("Hosts and GPUs")
    terminal.keys("P")
    terminal.wait("aaa-mine")
    terminal.keys("e")
    terminal.wait(told)
    terminal.keys("Escape")
    terminal.wait("Hosts and GPUs")
    terminal.keys("q")
    terminal.wait("left with 0")


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"EAGLEMON_ASCII": "1"}, "| "),
        ({"LANG": "C", "TERM": "linux"}, "| "),
        ({"NO_COLOR": "1"}, "│"),
        ({"TERM": "screen"}, "│"),
    ],
)
def test_terminals_that_can_do_less(start: Start, more: dict[str, str], wanted: str) -> None:
    terminal = start("tui", "local", **more)
    seen = terminal.wait("Hosts and GPUs")
    assert wanted in seen
    assert seen.isascii() is (wanted == "| ")
    terminal.keys("q")
    terminal.wait("left with 0")


@pytest.mark.parametrize(
    ("environment", "speaks"),
    [
        ({"LANG": "C"}, False),
        ({"LC_ALL": "POSIX", "LANG": "C.UTF-8"}, False),
        ({"LANG": "en_US.ISO-8859-1"}, False),
        ({"LANG": "de_DE.utf8@euro"}, True),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),
        ({}, True),
    ],
)
def test_the_locale_says_whether_the_terminal_speaks_utf8(
    environment: dict[str, str], speaks: bool
) -> None:
    # In a process of its own: Python decides what it makes of a C locale when it starts.
    told = subprocess.run(
        [sys.executable, "-c", "from eaglemon.cli.tui import speaks_utf8; print(speaks_utf8())"],
        env={"PATH": os.environ["PATH"], **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    assert told.stdout.strip() == str(speaks)


def test_the_terminal_is_lent_to_the_shell_and_taken_back(
    tmp_path: Path, socket_folder: Path
) -> None:
    terminal = Terminal(socket_folder / "tmux")
    folders = f"HOME={tmp_path} XDG_STATE_HOME={tmp_path} LC_ALL=C.UTF-8"
    line = shlex.join([sys.executable, "-m", "eaglemon", "tui", "local"])
    terminal.command("bash --norc -i")
    try:
        terminal.keys(f"{folders} {line}", "Enter")
        terminal.wait("Hosts and GPUs")
        terminal.keys("C-z")
        terminal.wait("Stopped")
        terminal.keys("fg; echo left with $?", "Enter")
        terminal.wait("Hosts and GPUs")
        terminal.keys("q")
        terminal.wait("left with 0")
    finally:
        terminal.end()
