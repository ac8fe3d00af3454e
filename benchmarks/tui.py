"""Measures the console beside other terminal monitors on a fake driver and fake engines.

    python benchmarks/tui.py --rig RIG --peers VENV/bin --eaglemon .venv/bin/eaglemon [-o table.md]

``RIG`` is a built copy of the measuring rig (``lib/libnvidia-ml.so.1``, ``bin/``,
``fake_engine.py``, ``hang.py``, ``first.py``, ``ptybench.py``, ``quit.py``); ``VENV`` has psutil
and the monitors from PyPI. Each figure is of the whole process tree, agent included; a monitor
that is not installed is left out and said so. First data is the median of five starts.
"""

import argparse
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SIZE = "50x200"
SETTLE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One monitor and how it is started."""

    name: str
    argv: tuple[str, ...]
    marker: str
    """Text of its first picture with data."""
    hung: tuple[str, ...] = ()
    """How it is started with something that accepts and never answers."""
    keys: str = "jk"


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def background(python: Path, script: Path, *arguments: str) -> Iterator[None]:
    """Run a part of the rig for as long as the block lasts."""
    process = subprocess.Popen(
        [python, script, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        process.kill()
        process.wait()


def subjects(
    eaglemon: Path, peers: Path, folder: Path, *, sglang: int, vllm: int, hung: int
) -> list[Subject]:
    """Return what is measured; ``folder`` gets the configuration with a host that hangs."""
    config = folder / "hosts.toml"
    config.write_text(f'[hosts.hung]\naddress = "127.0.0.1"\nport = {hung}\n', encoding="utf-8")
    own = str(eaglemon)
    sgtop, stat = str(peers / "sgtop"), str(peers / "vllmstat")
    direct = ("--host", "127.0.0.1", "--port")
    return [
        Subject(
            name="eaglemon",
            argv=(own, "tui", "local"),
            marker="H200",
            hung=(own, "--config", str(folder), "tui", "local", "hung"),
        ),
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


def output_of(argv: Sequence[str | Path], environment: dict[str, str], limit_s: float) -> str:
    """Return what a part of the rig printed."""
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
    )
    return done.stdout.strip()


def figure(pattern: str, text: str) -> str:
    """Return the first group of ``pattern`` in ``text``, a dash where it is not there."""
    found = re.search(pattern, text)
    return found.group(1) if found else "-"


def row(subject: Subject, options: argparse.Namespace, environment: dict[str, str]) -> list[str]:
    """Measure one monitor."""
    rig, python = options.rig, options.python
    first = output_of(
        [python, rig / "first.py", subject.marker, "--", *subject.argv], environment, 60
    )
    steady = output_of(
        [
            python,
            rig / "ptybench.py",
            str(options.seconds),
            SIZE,
            subject.marker,
            subject.keys,
            "--",
            *subject.argv,
        ],
        environment,
        options.seconds + 30,
    )
    quit_s = output_of([python, rig / "quit.py", "5", "--", *subject.argv], environment, 60)
    hung = "-"
    if subject.hung:
        told = output_of([python, rig / "quit.py", "6", "--", *subject.hung], environment, 60)
        hung = figure(r"quit=([\d.]+)s", told)
    return [
        subject.name,
        figure(r"median ([\d.]+) s", first),
        figure(r"cpu=([\d.]+)%", steady),
        figure(r"out=([\d.]+)KiB", steady),
        figure(r"rss=(\d+)MiB", steady),
        figure(r"key=(\d+)ms", steady),
        figure(r"quit=([\d.]+)s", quit_s),
        hung,
    ]


HEADER = (
    "monitor",
    "first data, s",
    "CPU, % of a core",
    "to the terminal, KiB/s",
    "RSS, MiB",
    "key to picture, ms",
    "quit, s",
    "quit while one hangs, s",
)


def main() -> None:
    """Measure all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rig", type=Path, required=True)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--python", type=Path, help="with psutil; default: that of the peers")
    parser.add_argument("--eaglemon", type=Path, default=Path(".venv/bin/eaglemon"))
    parser.add_argument("--seconds", type=int, default=18)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.python = options.python or options.peers / "python"
    sglang, vllm, hung = free_port(), free_port(), free_port()
    lines = [f"| {' | '.join(HEADER)} |", "|" + "---|" * len(HEADER)]
    rig = options.rig
    with (
        tempfile.TemporaryDirectory() as scratch,
        background(options.python, rig / "fake_engine.py", "sglang", str(sglang)),
        background(options.python, rig / "fake_engine.py", "vllm", str(vllm)),
        background(options.python, rig / "hang.py", str(hung)),
    ):
        folder = Path(scratch)
        environment = {
            **os.environ,
            "PATH": f"{rig / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(rig / "lib"),
            "FAKE_PID": str(os.getpid()),
            "FAKE_GPUS": str(options.gpus),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        for subject in subjects(
            options.eaglemon, options.peers, folder, sglang=sglang, vllm=vllm, hung=hung
        ):
            if not Path(subject.argv[0]).exists():
                lines.append(f"| {subject.name} | not installed |" + " |" * (len(HEADER) - 2))
                continue
            lines.append(f"| {' | '.join(row(subject, options, environment))} |")
            print(lines[-1], flush=True)
    load = os.getloadavg()[0]
    text = "\n".join([*lines, "", f"{options.gpus} GPUs, {SIZE}, load {load:.1f} at the end."])
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
