"""How the log screen copes with a log of ten million lines on a host: run it, read the table.

    python benchmarks/long_log.py [--lines 10000000]

A process on this machine writes the log (about 100 bytes a line); the console reaches it through
its agent, as it would over SSH, and is driven without a terminal at 120x40. Times are from the key
to the lines on the screen. RSS is the console's and that of the agent with all it started. The
console also reads the whole log once for what it tells of the server, as it does for every server
that it finds running; the screen is measured after that.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

from textual.pilot import Pilot

from eaglemon.app.hub import Hub
from eaglemon.core.lines import LineAssembler
from eaglemon.core.runs import RunRequest
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.host_config import LOCAL
from eaglemon.io.local import LocalTransport
from eaglemon.io.workloads import load_workload
from eaglemon.tui.app import ConsoleApp
from eaglemon.tui.widgets.whole_log import WholeLog

LIMIT_S = 600.0
PORT = 39999
WRITER = """
import sys
pad = "accept len: 2.81, gen throughput (token/s): 141.3, #queue-req: 0"
for first in range(0, {lines}, 50000):
    sys.stdout.write("".join(
        "[2026-11-%02d %02d:%02d:%02d TP0] step %08d %s %s\\n"
        % (n // 864000 % 28 + 1, n // 36000 % 24, n // 600 % 60, n // 10 % 60, n,
           "needle" if n % 1000000 == 7 else "", pad)
        for n in range(first, min(first + 50000, {lines}))
    ))
"""


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process, now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *children(int(entry.name))]
    return found


async def until(holds: Callable[[], bool]) -> None:
    """Poll until something holds."""
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - nothing tells what is on the screen
            await asyncio.sleep(0.005)


async def write_log(lines: int) -> tuple[Path, float, float]:
    """Let a run write the log; return its path, its size in MB, and how fast it is followed."""
    link = await AgentLink.open(LocalTransport())
    words = (sys.executable, "-c", WRITER.format(lines=lines))
    record = await link.start_run(
        RunRequest(
            id="long-log", name="long-log", profile="long-log", digest="0", engine="sglang",
            address="127.0.0.1", port=PORT, argv=words, argv_recorded=words,
        )
    )  # fmt: skip
    path = Path(record.log_path)
    last = f"step {lines - 1:08}".encode()
    await until(lambda: path.exists() and last in tail_of(path))
    began, assembler, count = time.perf_counter(), LineAssembler(), 0
    async with aclosing(link.follow_log(record.id)) as chunks:
        async for chunk in chunks:
            count += sum(len(texts) for texts, _ in assembler.texts(chunk.data))
            if count >= lines:
                break
    took_s = time.perf_counter() - began
    await link.close()
    size_mb = await asyncio.to_thread(lambda: path.stat().st_size) / 1e6
    return path, size_mb, size_mb / took_s


def tail_of(path: Path) -> bytes:
    """Return the last bytes of a file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 400))
        return file.read()


class Screen:
    """The log screen under measurement."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[None], lines: int) -> None:
        self.rows: list[tuple[str, str]] = []
        self._app, self._pilot, self._lines = app, pilot, lines

    def shows(self, text: str) -> bool:
        """Tell whether a line in sight contains a text."""
        log = self._app.screen.query_one(WholeLog)
        return any(text in log.render_line(y).text for y in range(log.size.height))

    async def timed(self, name: str, keys: Sequence[str], holds: Callable[[], bool]) -> None:
        """Press keys and add a row with the time until something holds."""
        at = time.perf_counter()
        await self._pilot.press(*keys)
        await until(holds)
        self.rows.append((name, f"{time.perf_counter() - at:.2f} s"))

    async def measure(self, run: str) -> None:
        """Open the log and go about in it."""
        last, half = f"step {self._lines - 1:08}", self._lines // 2
        hits = range(7, self._lines, 1_000_000)
        at = time.perf_counter()
        self._app.open_log(run)
        await self._pilot.pause()
        log = self._app.screen.query_one(WholeLog)
        await until(lambda: self.shows(last))
        self.rows.append(("open at the end", f"{time.perf_counter() - at:.2f} s"))
        await until(lambda: log.whole)
        self.rows.append(("every line can be gone to", f"{time.perf_counter() - at:.2f} s"))
        typed = ("J", *str(half), "enter")
        wanted = f"step {half - 1:08}"
        await self.timed(f"jump to line {half:,}", typed, lambda: self.shows(wanted))
        await self.timed("to the first line", "g", lambda: self.shows("step 00000000"))
        await self.timed("back to the end", "G", lambda: self.shows(last))
        typed, wanted = ("slash", *"needle", "enter"), f"step {hits[-1]:08}"
        at = time.perf_counter()
        await self.timed("search, first hit", typed, lambda: self.shows(wanted))
        await until(lambda: log._hits.done)  # noqa: SLF001
        self.rows.append(("search, all of it", f"{time.perf_counter() - at:.2f} s"))
        typed = ("ampersand", *"needle", "enter")
        await self.timed("filter, all of it", typed, lambda: len(log.lines) == len(hits))


async def measure(lines: int) -> list[tuple[str, str]]:
    """Write the log, drive the screen and return the rows of the table."""
    path, size_mb, followed = await write_log(lines)
    run = path.parent.name
    rows = [("the log", f"{lines:,} lines, {size_mb:.0f} MB")]
    rows.append(("followed and cut into lines", f"{followed:.0f} MB/s"))
    hub = Hub([LOCAL], ProfileStore.load(), connect=transport_to, workload=load_workload)
    async with hub:
        began = time.perf_counter()
        await until(lambda: hub.snapshot().server(run) is not None)
        keeper = hub._keepers[run]  # noqa: SLF001
        await until(lambda: keeper.log.ended)
        took_s = time.perf_counter() - began
        rows.append(("read once for what it tells", f"{took_s:.1f} s, {size_mb / took_s:.0f} MB/s"))
        before = rss_mib(os.getpid())
        app = ConsoleApp(hub)
        async with app.run_test(size=(120, 40)) as pilot:
            screen = Screen(app, pilot, lines)
            await pilot.pause()
            await screen.measure(run)
            after, agents = rss_mib(os.getpid()), sum(map(rss_mib, children(os.getpid())))
            rows += screen.rows
            rows.append(("RSS of the console, before and after", f"{before:.0f}, {after:.0f} MiB"))
            rows.append(("RSS of the agent", f"{agents:.0f} MiB"))
    return rows


def main() -> None:
    """Measure and print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--lines", type=int, default=10_000_000)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        for name, value in asyncio.run(measure(chosen.lines)):
            print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
