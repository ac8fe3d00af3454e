"""Measures eaglemon beside other GPU monitors on fake GPUs: one table in Markdown.

    python benchmarks/monitors.py --rig RIG --peers BIN [--seconds 20] [--hosts 8]

RIG is a folder with a fake driver library (``lib/libnvidia-ml.so.1``, FAKE_GPUS, FAKE_PID) and a
fake ``bin/nvidia-smi``. BIN is the bin folder of a virtual environment with nvitop, mnvitop and
clustop. Each runs in a terminal of its own (``terminal.py``): time to the first data (median of
three starts, after one that does not count), then CPU of its tree of processes, memory and bytes to
the terminal after a warm-up of 5 s. Remote hosts are one real sshd on loopback (openssh-server),
reached under as many names; all of them share this machine.
"""

import argparse
import contextlib
import getpass
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from terminal import COLUMNS, ROWS, Terminal, compiled  # noqa: E402 -- after the path is set

from tests.sshd import Sshd, start_sshd  # noqa: E402

STARTS, WARM_UP_S = 3, 5.0


def measure(
    asked: argparse.Namespace, name: str, marker: str, env: dict[str, str], *command: str
) -> None:
    """Print the row of one program."""
    if shutil.which(command[0], path=env["PATH"]) is None:
        print(f"| {name} | not installed | | | |", flush=True)
        return
    starts = []
    for _ in range(1 + STARTS):
        with Terminal(command, env) as run:
            starts.append(run.first(marker))
    seen = [data_s for data_s in starts[1:] if data_s is not None]
    with Terminal(command, env) as run:
        run.run_for(WARM_UP_S)
        cpu, sent, begin = run.cpu_s(), run.bytes, time.monotonic()
        run.run_for(asked.seconds)
        took_s = time.monotonic() - begin
        share, rate = (run.cpu_s() - cpu) / took_s, (run.bytes - sent) / took_s / 1024
        first = f"{statistics.median(seen):.2f}" if seen else "-"
        cells = f"{first} | {share * 100:.1f} | {run.resident_mib():.0f} | {rate:.1f}"
        print(f"| {name} | {cells} |", flush=True)


def agent_figures(env: dict[str, str], seconds: float) -> str:
    """Return CPU and memory of the agent alone: 8 GPUs at 1 Hz."""
    code = (
        "import asyncio, sys\n"
        "from contextlib import aclosing\n"
        "from eaglemon.io.agent_link import AgentLink\n"
        "from eaglemon.io.local import LocalTransport\n"
        "async def main():\n"
        "    link = await AgentLink.open(LocalTransport())\n"
        "    async with aclosing(link.watch_gpus()) as samples:\n"
        "        async for sample in samples: pass\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=env, cwd=ROOT) as console:
        try:
            time.sleep(5.0)
            pid = agents_below(console.pid)[0]
            before, started_at = cpu_s(pid), time.monotonic()
            time.sleep(seconds)
            share = (cpu_s(pid) - before) / (time.monotonic() - started_at)
            status = Path(f"/proc/{pid}/status").read_text()
            resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
            return f"{share * 100:.2f} % of a core, {resident:.1f} MiB"
        finally:
            console.kill()


def agents_below(pid: int) -> list[int]:
    """Return the agents among the processes below ``pid``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after = (entry / "stat").read_text()
            if "(eaglemon-agent)" in after and is_below(int(entry.name), pid):
                found.append(int(entry.name))
    if not found:
        raise RuntimeError("the agent is not there")
    return found


def is_below(pid: int, ancestor: int) -> bool:
    """Tell whether one process descends from another."""
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def remote_hosts(folder: Path, rig: Path, count: int) -> Iterator[tuple[Sshd, list[str]]]:
    """Run one sshd, with an ssh client and a hosts.toml that know it under ``count`` names."""
    # Sessions get the fake driver and the fake nvidia-smi.
    extra = [f"SetEnv LD_LIBRARY_PATH={rig}/lib FAKE_PID=1 PATH={rig}/bin:/usr/bin:/bin"]
    server = start_sshd(folder / "sshd", extra=[*extra, "MaxStartups 100", "MaxSessions 10"])
    names = [f"h{number}" for number in range(1, count + 1)]
    (folder / "ssh_config").write_text(
        f"Host h*\n  HostName 127.0.0.1\n  Port {server.port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {server.identity}\n  UserKnownHostsFile {server.known_hosts}\n"
    )
    client = folder / "bin/ssh"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config "$@"\n')
    client.chmod(0o755)
    lines = [f'[hosts.{name}]\nssh_config = "{folder}/ssh_config"\n' for name in names]
    (folder / "over.toml").write_text("".join(lines))
    try:
        yield server, names
    finally:
        server.stop()


def main() -> None:
    """Measure all and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rig", type=Path, required=True)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--hosts", type=int, default=8)
    asked = parser.parse_args()
    asked.rig, asked.peers = asked.rig.resolve(), asked.peers.absolute()
    eaglemon = str(Path(sys.executable).parent / "eaglemon")
    with tempfile.TemporaryDirectory() as scratch:
        compare(asked, eaglemon, Path(scratch))


def compare(asked: argparse.Namespace, eaglemon: str, scratch: Path) -> None:
    """Print the table; ``scratch`` gets compiled files."""
    base = {
        **compiled(os.environ, scratch),
        "LD_LIBRARY_PATH": f"{asked.rig}/lib",
        "FAKE_PID": str(os.getpid()),
        "PATH": f"{asked.rig}/bin:{asked.peers}:{os.environ['PATH']}",
    }
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, terminal {COLUMNS}x{ROWS}\n")
    print("| program | first data, s | CPU % of a core | RSS MiB | KiB/s to the terminal |")
    print("|---|---|---|---|---|")
    measure(asked, "nvitop, local", "H200", base, "nvitop", "--monitor", "full")
    measure(asked, "eaglemon, local", "H200", base, eaglemon, "tui", "local")
    watch = (eaglemon, "gpus", "local", "--watch")
    measure(asked, "eaglemon gpus --watch, local", "H200", base, *watch)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with remote_hosts(folder, asked.rig, asked.hosts) as (_, names):
            far = {**base, "PATH": f"{folder}/bin:{base['PATH']}"}
            about = f"{len(names)} hosts over loopback SSH"
            measure(asked, f"mnvitop, {about}", "H200", far, "mnvitop", *names)
            measure(asked, f"clustop, {about}", "H200", far, "clustop", *names)
            over = ("--config", f"{folder}/over.toml")
            measure(asked, f"eaglemon, {about}", "H200", far, eaglemon, *over, "tui", *names)
            gpus = (eaglemon, *over, "gpus", *names, "--watch")
            measure(asked, f"eaglemon gpus --watch, {about}", "H200", far, *gpus)
    fleet = str(Path(__file__).with_name("simulated_fleet.py"))
    for hosts in (8, 64):
        name = f"eaglemon, {hosts} x 8 GPUs simulated in its own process"
        measure(asked, name, "H200", base, sys.executable, fleet, str(hosts), "8")
    print(f"\nagent, 8 GPUs at 1 Hz: {agent_figures(base, asked.seconds)}")


if __name__ == "__main__":
    main()
