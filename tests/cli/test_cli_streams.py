"""Ctrl-C while the command line loads, and standard streams that are full, closed or left."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="uses sh and POSIX signals")

LIMIT_S = 60.0
LOADING = "import sys\nprint('loading', flush=True)\nsys.stdin.read()\n"
BIG = """
from eaglemon.cli import main, output
import click
@click.command()
def big():
    for number in range(1000):
        output.write_document("big", {"lines": ["x" * 10_000]})
main.LazyGroup.get_command = lambda self, ctx, name: big
main.main()
"""


def shell(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


EAGLEMON = f"{shlex.quote(sys.executable)} -m eaglemon"


def test_ctrl_c_while_it_loads_is_one_line(home: Path) -> None:
    # The folder that a module is run from comes first on the path.
    (home / "click.py").write_text(LOADING)
    process = subprocess.Popen(
        [sys.executable, "-m", "eaglemon", "status"],
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (130, "eaglemon: interrupted\n")


@pytest.mark.parametrize("words", ["hosts", "hosts --json", "--help", "profiles --help"])
@pytest.mark.parametrize(
    ("to", "why"),
    [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")],
)
def test_a_stdout_that_takes_nothing_is_one_line(home: Path, words: str, to: str, why: str) -> None:
    done = shell(f"{EAGLEMON} {words} {to}", home)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"eaglemon: cannot write to stdout: {why}\n"


def test_a_reader_that_leaves_ends_it_quietly(home: Path) -> None:
    (home / "big.py").write_text(BIG)
    done = shell(f"{shlex.quote(sys.executable)} big.py status | head -n 1", home)
    assert (done.returncode, done.stdout, done.stderr) == (1, "{\n", "")


def test_closed_stdin_and_stderr_are_no_matter(home: Path) -> None:
    assert shell(f"{EAGLEMON} hosts <&- 2>&-", home).returncode == 0
    refused = shell(f"{EAGLEMON} profiles show nothing <&- 2>/dev/full", home)
    assert (refused.returncode, refused.stderr) == (2, "")
