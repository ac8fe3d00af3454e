import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eaglemon.core.hosts import LinkState
from eaglemon.errors import HostError, UsageError
from tests.cli.conftest import CommandLine
from tests.cli.fake_console import FakeConsole


def test_an_unexpected_error_is_one_line_and_its_traceback_is_in_the_log(
    run: CommandLine, home: Path
) -> None:
    def crash(console: FakeConsole) -> None:
        console.crash = ZeroDivisionError("division by zero")

    result = run("status", prepare=crash)
    log = home / "state/eaglemon/eaglemon.log"
    assert result.code == 1
    assert result.err == (
        "eaglemon: unexpected ZeroDivisionError: division by zero; this is a mistake in eaglemon, "
        f"the traceback is in {log}\n"
    )
    assert "Traceback (most recent call last)" in log.read_text()


def test_a_log_that_cannot_be_written_does_not_hide_the_error(run: CommandLine, home: Path) -> None:
    (home / "state").write_text("a file where the folder should be")

    def crash(console: FakeConsole) -> None:
        console.crash = ZeroDivisionError("x")

    result = run("status", prepare=crash)
    assert result.code == 1
    assert "could not be written" in result.err


def test_errors_of_a_group_keep_their_exit_code(run: CommandLine) -> None:
    def crash(console: FakeConsole) -> None:
        console.crash = ExceptionGroup("tasks", [HostError("gpu-a is down")])

    result = run("status", prepare=crash)
    assert (result.code, result.err) == (3, "eaglemon: gpu-a is down\n")


def test_one_silent_host_is_a_warning_for_a_launch_elsewhere(run: CommandLine) -> None:
    def degraded(console: FakeConsole) -> None:
        console.state = LinkState.DEGRADED

    assert run("launch", "sglang-eagle3", "--host", "a", prepare=degraded).code == 0


def test_a_host_that_never_answers_is_unreachable(run: CommandLine) -> None:
    def hung(console: FakeConsole) -> None:
        console.state = LinkState.CONNECTING

    result = run("status", "gpu-a", prepare=hung)
    assert (result.code, result.err) == (3, "eaglemon: gpu-a: no answer (connecting)\n")


def test_the_next_step_for_a_host_that_is_away_is_the_hint_of_its_error(run: CommandLine) -> None:
    def locked_out(console: FakeConsole) -> None:
        console.state = LinkState.DOWN
        console.detail, console.hint = "a does not let b in; run ssh-add", "run ssh-add"

    result = run("launch", "sglang-eagle3", "--host", "gpu-a", "--json", prepare=locked_out)
    error = result.document["error"]
    assert (error["message"], error["hint"]) == ("gpu-a: a does not let b in", "run ssh-add")
    assert result.err == "eaglemon: gpu-a: a does not let b in; run ssh-add\n"


def test_usage_errors_as_json_are_one_document(run: CommandLine) -> None:
    document = run("wait", "nothing", "--json").document
    assert document["command"] == "wait"
    assert document["error"]["kind"] == UsageError.__name__
    assert run("kill", "--json").document["error"]["exit_code"] == 2


SLOW = """
import asyncio, sys
from contextlib import asynccontextmanager
from eaglemon.cli import main, session

class Slow:
    async def settle(self, *, timeout_s=20.0, needs="servers"):
        print("waiting", flush=True, file=sys.stderr)
        await asyncio.Event().wait()

@asynccontextmanager
async def open_console(hosts, profiles):
    yield Slow()

session.open_console = open_console
main.main()
"""


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
@pytest.mark.parametrize(
    ("sent", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")]
)
def test_a_signal_ends_with_130_and_one_line(home: Path, sent: signal.Signals, word: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "wait", "x"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting\n"
        process.send_signal(sent)
        try:
            out, err = process.communicate(timeout=90)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err == f"eaglemon: {word}; the server is not touched by this\n"


STOPPING = """
import asyncio, sys
from eaglemon.cli import main, running, wait

left = ["a-1", "b-2"]

async def work():
    try:
        print("waiting", flush=True, file=sys.stderr)
        await asyncio.Event().wait()
    finally:
        print("stopping", flush=True, file=sys.stderr)
        await asyncio.Event().wait()

running.run(work(), if_interrupted=lambda: f"left {left}", stopping=lambda: left)
"""


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_only_a_third_interrupt_leaves_what_is_being_stopped(home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPING], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        try:
            for word in (
                "waiting",
                "stopping",
                "still stopping 2 servers: a-1, b-2; Ctrl-C once more to leave them",
            ):
                assert process.stderr.readline() == f"{word}\n"
                process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=90)
        finally:
            process.kill()
    assert "InterruptedByPersonError: interrupted; left ['a-1', 'b-2']" in err


def test_help_loads_no_network_and_no_console() -> None:
    code = (
        "import sys\nfrom eaglemon.cli import main\nassert main.run(['--help']) == 0\n"
        "heavy = {'textual', 'asyncssh', 'httpx', 'asyncio', 'eaglemon.app.hub'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exit codes" in done.stdout


def test_a_reader_that_goes_away_is_no_crash(home: Path) -> None:
    # The pipe's reading end is closed before the command starts: its first write fails.
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "eaglemon", "profiles", "--json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_name_of_a_host_is_told_once(run: CommandLine) -> None:
    def down(console: FakeConsole) -> None:
        console.state, console.detail = LinkState.DOWN, "no host named nohost is known"

    assert run("status", "nohost", prepare=down).err == (
        "eaglemon: nohost: no host named nohost is known\n"
    )


def test_a_broken_profile_is_told_once(run: CommandLine, home: Path) -> None:
    folder = home / "config/eaglemon/profiles"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text("engine = 'sglang'\nmodel = 3\n")
    (folder / "other.toml").write_text("engine = 'sglang'\nmodel = 4\n")
    for words in (("launch", "mine", "--host", "a"), ("profiles", "show", "mine")):
        result = run(*words)
        assert result.code == 2
        assert result.err.count("mine.toml") == 1
        assert "warning" in next(x for x in result.err.splitlines() if "other.toml" in x)
