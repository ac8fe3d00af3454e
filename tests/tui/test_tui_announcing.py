"""What a real terminal is sent when a long job ends, and what is not."""

import asyncio
import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from eaglemon.core.terminal import ANNOUNCEMENTS
from eaglemon.tui.announcing import announcement, knows_osc9

KITTY = {"TERM": "xterm-kitty", "KITTY_WINDOW_ID": "1"}
XTERM = {"TERM": "xterm-256color"}
OSC9 = "\x1b]9;k25 is ready\a"
CONSOLE = """
import asyncio, sys
sys.path.insert(0, "")
from eaglemon.core.views import Snapshot
from tests.tui.fake_console import FakeConsole
from eaglemon.tui.app import ConsoleApp

async def main():
    app = ConsoleApp(FakeConsole(Snapshot(at=0.0)), announces=sys.argv[1])
    async def told():
        await app.drawn.wait()
        app.tell_end("k25 is ready")
        await asyncio.sleep(0.5)
        app.exit()
    asyncio.get_running_loop().create_task(told())
    await app.run_async()
asyncio.run(main())
"""


def test_only_terminals_that_show_it_get_a_notification_by_default() -> None:
    assert announcement("k25 is ready", "auto", XTERM) == "\a"
    assert announcement("k25 is ready", "auto", KITTY) == "\a" + OSC9
    assert knows_osc9({"TERM": "screen-256color", "LC_TERMINAL": "iTerm2"})
    for term in ("linux", "dumb", ""):
        assert not knows_osc9({**KITTY, "TERM": term})


def test_each_way_is_what_it_says() -> None:
    sent = {way: announcement("k25 is ready", way, XTERM) for way in ANNOUNCEMENTS}
    assert sent == {"auto": "\a", "bell": "\a", "osc9": OSC9, "both": "\a" + OSC9, "none": ""}


def test_multiplexers_get_it_wrapped() -> None:
    inside = {**KITTY, "TERM": "tmux-256color", "TMUX": "/tmp/tmux,1,0"}
    assert announcement("x", "osc9", inside) == "\x1bPtmux;\x1b\x1b]9;x\a\x1b\\"
    assert announcement("x", "osc9", {"TERM": "screen", "STY": "1.a"}) == "\x1bP\x1b]9;x\a\x1b\\"


def test_a_text_can_neither_end_the_sequence_nor_mean_something_else() -> None:
    sent = announcement("4;2;99 \x1b]0;evil\a\x9c" + "x" * 500, "osc9", XTERM)
    assert sent.startswith("\x1b]9;")
    assert not sent.removeprefix("\x1b]9;")[0].isdigit()
    assert sent.count("\x1b") == 1
    assert sent.index("\a") == len(sent) - 1
    assert len(sent) < 300


def on_a_pty(way: str, environment: Mapping[str, str]) -> bytes:
    """Return what the console writes to a terminal of its own when a job ends."""
    child, parent = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", CONSOLE, way],
        stdin=parent,
        stdout=parent,
        stderr=parent,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "COLUMNS": "100", "LINES": "30", **environment},
        cwd=Path(__file__).parents[2],
    ) as process:
        os.close(parent)
        seen = b""
        killer = threading.Timer(90, process.kill)
        killer.start()
        while True:
            # Linux answers with EIO when the last writer has gone.
            with contextlib.suppress(OSError):
                data = b""
                data = os.read(child, 1 << 16)
            if not data:
                break
            seen += data
        killer.cancel()
    os.close(child)
    return seen


@pytest.mark.parametrize(
    ("way", "environment", "bell", "notified"),
    [("auto", XTERM, True, False), ("auto", KITTY, True, True), ("none", KITTY, False, False)],
)
async def test_the_bytes_reach_the_terminal(
    way: str, environment: Mapping[str, str], *, bell: bool, notified: bool
) -> None:
    seen = await asyncio.to_thread(on_a_pty, way, environment)
    assert b"k25 is ready" in seen
    assert (OSC9.encode() in seen) is notified
    # A sequence such as that for the window's title ends with the same byte.
    rest = re.sub(rb"\x1b\][^\a\x1b]*(?:\a|\x1b\\)", b"", seen)
    assert (b"\a" in rest) is bell


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_tmux_prints_nothing_of_it_and_rings(socket_folder: Path) -> None:
    tmux = ["tmux", "-S", str(socket_folder / "tmux"), "-f", "/dev/null"]

    def run(*words: str) -> str:
        return subprocess.run([*tmux, *words], check=True, capture_output=True, text=True).stdout

    printing = (
        "import os, sys; sys.path.insert(0, '.'); "
        "from eaglemon.tui.announcing import announcement; "
        "os.write(1, announcement('k25 is ready', 'both', os.environ).encode()); "
        "print('written')"
    )
    command = f'cd {Path(__file__).parents[2]}; {sys.executable} -c "{printing}"; sleep 600'
    run("new-session", "-d", "-x", "80", "-y", "5", "sleep 600")
    try:
        run("new-window", "-d", command)
        deadline = time.monotonic() + 60
        while "written" not in (text := run("capture-pane", "-p", "-t", ":1")):
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        assert text.split() == ["written"]
        assert run("list-windows", "-F", "#{window_index} #{window_bell_flag}").split() == [
            "0", "0", "1", "1",
        ]  # fmt: skip
    finally:
        run("kill-server")
