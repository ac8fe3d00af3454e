"""Measures the console beside other terminal monitors on a fake driver and fake engines.

    python benchmarks/tui.py --rig RIG --peers VENV/bin [-o table.md] [--seconds 18] [--starts 5]

``RIG`` is a built copy of the measuring rig (``lib/libnvidia-ml.so.1``, ``bin/``,
``fake_engine.py``, ``hang.py``); ``VENV`` is an environment with nvitop, vllmstat, vllmops and
sgtop from PyPI. All is measured in one run, of the whole tree of processes, eaglemon's agent
included; what is not installed is left out and said so. A second table has the console with more
hosts, over SSH (a real sshd on loopback under eight names) and simulated, a third its keys while
every host hangs. Linux only.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from monitors import agents_below, remote_hosts  # noqa: E402 -- after the path is set
from terminal import COLUMNS, ROWS, Terminal, compiled  # noqa: E402

SETTLE_S = 1.0
WARM_UP_S = 5.0
HANG_S = 6.0
"""From then on a host that has stopped answering is marked stale."""
KEYS = "jkjkjk"
HELLO = (
    "from textual.app import App\nfrom textual.widgets import Static\n"
    "class Hello(App):\n"
    "    def compose(self):\n        yield Static('hello ' * 100)\n"
    "Hello().run()\n"
)
"""Textual alone: nothing that is built on it can be drawn sooner."""


SILENT = "never-answers"
HUNG_PROFILE = """
engine = "sglang"
model = "/models/none"
port = {port}
command = ["sh", "-c", "exec {python} {script} {port}"]
"""
"""A server of ours that accepts and never answers; further words of its command go unheard."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One monitor and how it is started."""

    name: str
    argv: tuple[str, ...]
    marker: str | None
    """Text of its first picture with data."""
    hung: tuple[str, ...] = ()
    """How it is started with something that accepts and never answers; a host too for eaglemon."""


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def background(script: Path, *arguments: str) -> Iterator[None]:
    """Run a part of the rig for as long as the block lasts."""
    process = subprocess.Popen(
        [sys.executable, script, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        process.kill()
        process.wait()


def subjects(
    own: str, peers: Path, folder: Path, *, sglang: int, vllm: int, hung: int
) -> list[Subject]:
    """Return what is compared; ``folder`` gets the configuration with a host that hangs."""
    config = folder / "hosts.toml"
    config.write_text(f'[hosts.hung]\naddress = "127.0.0.1"\nport = {hung}\n', encoding="utf-8")
    sgtop, stat = str(peers / "sgtop"), str(peers / "vllmstat")
    direct = ("--host", "127.0.0.1", "--port")
    return [
        Subject(
            name="eaglemon",
            argv=(own, "tui", "local"),
            marker="H200",
            hung=(own, "--config", str(folder), "tui", "local", "hung"),
        ),
        Subject(name="Textual alone", argv=(sys.executable, "-c", HELLO), marker=None),
        Subject(name="nvitop", argv=(str(peers / "nvitop"), "--monitor", "full"), marker="H200"),
        Subject(
            name="vllmstat",
            argv=(stat, "--url", f"http://127.0.0.1:{vllm}"),
            marker="SPEC DECODE",
            hung=(stat, "--url", f"http://127.0.0.1:{hung}"),
        ),
        Subject(name="vllmops tui", argv=(str(peers / "vllmops"), "tui"), marker="vllmops"),
        Subject(
            name="sgtop",
            argv=(sgtop, *direct, str(sglang)),
            marker="accept",
            hung=(sgtop, *direct, str(hung)),
        ),
    ]


@contextmanager
def hung_server(own: str, rig: Path, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Keep a server that eaglemon started and that never answers, while the block lasts."""
    profile = HUNG_PROFILE.format(port=free_port(), python=sys.executable, script=rig / "hang.py")
    (folder / "profiles").mkdir()
    (folder / "profiles" / f"{SILENT}.toml").write_text(profile, encoding="utf-8")
    called: tuple[str, ...] = (own, "--config", str(folder))
    run_it: tuple[str, ...] = (*called, "launch", SILENT, "--host", "local", "--force")
    subprocess.run(run_it, env=environment, check=True, capture_output=True)
    try:
        yield
    finally:
        end_it: tuple[str, ...] = (
            *called,
            "kill",
            SILENT,
            "--host",
            "local",
            "--grace",
            "1s",
            "--yes",
        )
        # It exits with 1 where the fake driver cannot prove that memory is back.
        subprocess.run(end_it, env=environment, check=False, capture_output=True)


def shown(value: float | None, digits: int = 2, *, factor: float = 1.0) -> str:
    """Return a figure for a table."""
    return "-" if value is None else f"{value * factor:.{digits}f}"


def middle(values: list[float | None]) -> float | None:
    """Return the median of what was seen."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def steady(run: Terminal, seconds: float) -> tuple[float, float, float]:
    """Return CPU (share of a core), KiB/s to the terminal and resident MiB after a warm-up."""
    run.run_for(WARM_UP_S)
    cpu_s, data, begin = run.cpu_s(), run.bytes, time.monotonic()
    run.run_for(seconds)
    took_s = time.monotonic() - begin
    return (run.cpu_s() - cpu_s) / took_s, (run.bytes - data) / took_s / 1024, run.resident_mib()


def keys(run: Terminal, pressed: str) -> float | None:
    """Return the median seconds from a key to a change on the screen."""
    found = []
    for key in pressed:
        run.run_for(0.45)
        found.append(run.key(key))
    return middle(found)


HEADER = (
    "monitor", "first picture, s", "first data, s", "CPU, % of a core", "to the terminal, KiB/s",
    "RSS, MiB", "key to picture, ms", "quit, s", "quit while one hangs, s",
)  # fmt: skip


def compare(subject: Subject, options: argparse.Namespace, environment: dict[str, str]) -> str:
    """Measure one monitor beside the others and return its row."""
    pictures: list[float | None] = []
    data: list[float | None] = []
    for _ in range(options.starts + 1):
        with Terminal(subject.argv, environment) as run:
            pictures.append(run.first(None))
            data.append(run.first(subject.marker) if subject.marker else None)
    with Terminal(subject.argv, environment) as run:
        share, sent, resident = steady(run, options.seconds)
        key = keys(run, KEYS) if subject.marker else None
        leaving = "q" if subject.marker else "\x11"
        quit_s = run.leave(leaving)
    hung_s = time_to_quit(subject, options, environment) if subject.hung else None
    # The first start finds files that are not in memory, and compiles.
    return row(
        subject.name, shown(middle(pictures[1:])), shown(middle(data[1:])),
        shown(share, 1, factor=100), shown(sent, 1), shown(resident, 0),
        shown(key, 0, factor=1000), shown(quit_s), shown(hung_s),
    )  # fmt: skip


def time_to_quit(
    subject: Subject, options: argparse.Namespace, environment: dict[str, str]
) -> float | None:
    """Return the seconds that leaving takes while an engine, and a host, never answer."""
    with ExitStack() as stack:
        if subject.name == "eaglemon":
            folder = Path(subject.hung[subject.hung.index("--config") + 1])
            rig = options.rig.resolve()
            stack.enter_context(hung_server(options.eaglemon, rig, folder, environment))
        run = stack.enter_context(Terminal(subject.hung, environment))
        if subject.name == "eaglemon" and run.first(SILENT, limit_s=WARM_UP_S * 4) is None:
            raise RuntimeError("the server that hangs is not on the screen")
        run.run_for(WARM_UP_S)
        return run.leave()


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def head(*cells: str) -> list[str]:
    """Return the first two lines of a table."""
    return ["", row(*cells), "|" + "---|" * len(cells)]


def fleets(options: argparse.Namespace, environment: dict[str, str]) -> Iterator[str]:
    """Measure the console with more hosts."""
    simulated = str(Path(__file__).with_name("simulated_fleet.py"))
    for hosts in (8, 64):
        argv: tuple[str, ...] = (sys.executable, simulated, str(hosts), "8")
        name = f"{hosts} hosts x 8 GPUs, simulated in its own process"
        yield fleet(name, argv, options, environment)
    with eight_hosts(options, environment) as (argv, far, _):
        yield fleet("8 hosts x 8 GPUs over loopback SSH", argv, options, far)


@contextmanager
def eight_hosts(
    options: argparse.Namespace, environment: dict[str, str]
) -> Iterator[tuple[tuple[str, ...], dict[str, str], int]]:
    """Run an sshd of eight names; yield the console's command, environment, and the sshd's pid."""
    with (
        tempfile.TemporaryDirectory() as name,
        remote_hosts(Path(name), options.rig.resolve(), 8) as (server, names),
    ):
        argv = (options.eaglemon, "--config", f"{name}/over.toml", "tui", *names)
        far = {**environment, "PATH": f"{name}/bin:{environment['PATH']}"}
        yield argv, far, server.process.pid


def fleet(
    name: str, argv: tuple[str, ...], options: argparse.Namespace, environment: dict[str, str]
) -> str:
    """Measure the console on many hosts and return its row."""
    with Terminal(argv, environment) as run:
        data_s = run.first("H200")
        share, sent, resident = steady(run, options.seconds)
        key = keys(run, KEYS)
        quit_s = run.leave()
    return row(
        name, shown(data_s), shown(share, 1, factor=100), shown(sent, 1), shown(resident, 0),
        shown(key, 0, factor=1000), shown(quit_s),
    )  # fmt: skip


def hanging(argv: tuple[str, ...], environment: dict[str, str], sshd: int | None) -> list[str]:
    """Return key times in milliseconds while the agents of all hosts are stopped.

    Those are below ``sshd``, or below the console where its only host is local.
    """
    with Terminal(argv, environment) as run:
        run.first("H200")
        run.run_for(WARM_UP_S)
        run.hang(agents_below(run.pid if sshd is None else sshd))
        run.run_for(HANG_S)
        moved = keys(run, "jkjkjkjk")
        opened, left, helped = [], [], []
        for _ in range(3):
            run.run_for(1.0)
            opened.append(run.key("\r"))
            run.run_for(1.0)
            left.append(run.key("\x1b"))
            run.run_for(1.0)
            helped.append(run.key("?"))
            run.run_for(1.0)
            run.key("\x1b")
        run.run_for(1.0)
        times = [moved, middle(opened), middle(helped), middle(left), run.leave()]
        return [shown(seconds, 0, factor=1000) for seconds in times]


HANGING = ("move the cursor (j, k)", "open a host (enter)", "open the help (?)", "go back (esc)",
           "quit (q)")  # fmt: skip


def main() -> None:
    """Measure all and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rig", type=Path, required=True)
    parser.add_argument("--peers", type=Path, required=True)
    own = Path(sys.executable).with_name("eaglemon")
    parser.add_argument("--eaglemon", default=str(own))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    sglang, vllm, hung = free_port(), free_port(), free_port()
    rig, load = options.rig.resolve(), os.getloadavg()[0]
    lines: list[str] = []

    def tell(*more: str) -> None:
        lines.extend(more)
        print(*more, sep="\n", flush=True)

    with (
        tempfile.TemporaryDirectory() as scratch,
        background(rig / "fake_engine.py", "sglang", str(sglang)),
        background(rig / "fake_engine.py", "vllm", str(vllm)),
        background(rig / "hang.py", str(hung)),
    ):
        folder = Path(scratch)
        environment = {
            **compiled(os.environ, folder),
            "PATH": f"{rig / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(rig / "lib"),
            "FAKE_PID": str(os.getpid()),
            "FAKE_GPUS": str(options.gpus),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        tell(*head(*HEADER))
        ports = {"sglang": sglang, "vllm": vllm, "hung": hung}
        for subject in subjects(options.eaglemon, options.peers.absolute(), folder, **ports):
            if Path(subject.argv[0]).exists():
                tell(compare(subject, options, environment))
            else:
                tell(row(subject.name, "not installed", *[""] * (len(HEADER) - 2)))
        tell(*head("eaglemon with", "first data, s", *HEADER[3:8]))
        for line in fleets(options, environment):
            tell(line)
        tell(*head("while every host hangs, ms", "1 local host", "8 hosts over SSH"))
        # A state of its own: one ended server would have the cursor, with nowhere to go.
        bare = {**environment, "XDG_STATE_HOME": str(folder / "bare")}
        alone = hanging((options.eaglemon, "tui", "local"), bare, None)
        with eight_hosts(options, environment) as (argv, far, sshd):
            for cells in zip(HANGING, alone, hanging(argv, far, sshd), strict=True):
                tell(row(*cells))
    size = f"{COLUMNS} columns x {ROWS} rows"
    after = os.getloadavg()[0]
    tell("", f"{options.gpus} GPUs, {size}, load {load:.1f} before and {after:.1f} after.")
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
