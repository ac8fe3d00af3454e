"""How far a probe's figures are from the truth, by path, link and concurrency; prints a table.

The mock engine, the delaying proxy, the simulated host's SSH server and this console are processes
of their own on this machine. Errors are against what the engine really did, as it tells: from when
its kernel took a request in to when it handed chunks to it. All rows are of one run.

    python benchmarks/probe_accuracy.py --write docs/probes.md \
        --vllm-python PYTHON --guidellm PROGRAM --tokenizer MODEL_FOLDER
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import probe_peers
from mock_engine import GAPS_S, TOKENS, TTFT_S, accept_counts

from eaglemon.app.hub import Hub
from eaglemon.core.hosts import HostSpec
from eaglemon.core.probe import ProbePlan, Prompt
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload

HERE = Path(__file__).parent
LEVELS = (1, 8, 64)
REQUESTS = {1: 6, 8: 24, 64: 192}
ROUND_TRIP_S = 0.050
START_LIMIT_S, ROW_LIMIT_S = 60.0, 150.0
TOK_S_BOUND, ACCEPT_BOUND, TTFT_BOUND_S = 0.01, 0.01, 0.003
BEGIN, END = "<!-- probe_accuracy.py: begin -->", "<!-- probe_accuracy.py: end -->"
NAMES = (
    "tokens|link|load|users|tok/s per user|TTFT|accept length|in bounds|"
    "own CPU|own lag p95|marked|engine late p99|tries"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the engine did: medians over its answers."""

    tok_s: float
    ttft_s: float
    late_s: float
    """99 of 100 answers had no chunk that was sent later than this behind its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run beside the truth."""

    tokens: str
    link: str
    client: str
    users: int
    seen: probe_peers.Seen
    truth: Truth
    claims_ttft: bool = True
    claims_speed: bool = True
    """Whether it says that its figures are the server's."""
    cpu_share: float | None = None
    lag_s: float | None = None
    lagging: bool | None = None
    tries: int = 1

    @property
    def tok_s_off(self) -> float:
        """Share."""
        return self.seen.tok_s / self.truth.tok_s - 1

    @property
    def ttft_off_s(self) -> float:
        """Seconds."""
        return self.seen.ttft_s - self.truth.ttft_s

    @property
    def accept_off(self) -> float | None:
        """Share, ``None`` where nothing is told."""
        if self.seen.accept_length is None or self.tokens != "spec":
            return None
        steps, histogram = accept_counts(self.tokens)
        exact = 1 + sum(k * count for k, count in enumerate(histogram)) / steps
        return self.seen.accept_length / exact - 1

    def verdict(self) -> str:
        """Say whether the figures are within the bounds."""
        parts = {
            "tok/s": abs(self.tok_s_off) <= TOK_S_BOUND,
            "TTFT": abs(self.ttft_off_s) <= TTFT_BOUND_S,
            "accept length": self.accept_off is None or abs(self.accept_off) <= ACCEPT_BOUND,
            "requests": self.seen.bad == 0,
        }
        missed = [name for name, held in parts.items() if not held]
        claimed = {"tok/s": self.claims_speed, "TTFT": self.claims_ttft}
        wrong = [name for name in missed if claimed.get(name, True)]
        if wrong:
            return f"**no: {', '.join(wrong)}**"
        return f"{', '.join(missed)} not claimed" if missed else "yes"

    def cells(self) -> list[str]:
        """Return the row as it is printed."""
        return [
            self.tokens,
            self.link,
            self.client,
            str(self.users),
            f"{self.tok_s_off:+.2%}",
            f"{self.ttft_off_s * 1000:+.1f} ms",
            "-" if self.accept_off is None else f"{self.accept_off:+.2%}",
            self.verdict(),
            "-" if self.cpu_share is None else f"{self.cpu_share:.0%}",
            "-" if self.lag_s is None else f"{self.lag_s * 1000:.1f} ms",
            "-" if self.lagging is None else ("yes" if self.lagging else "no"),
            f"{self.truth.late_s * 1000:.1f} ms",
            str(self.tries),
        ]


@contextlib.asynccontextmanager
async def program(*argv: str, until: bytes = b"\n") -> AsyncIterator[str]:
    """Run a program until the end of the block; yields what it says up to ``until``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=HERE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_LIMIT_S):
            first = await process.stdout.readuntil(until)
        yield first.decode()
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(5.0):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def copy_keys(known: Path, mine: Path, port: str, proxy: str) -> None:
    """Write the host's keys as those of the proxy's port."""
    mine.write_text(known.read_text().replace(f":{port} ", f":{proxy} "))


@contextlib.asynccontextmanager
async def distant_host(folder: Path) -> AsyncIterator[HostSpec]:
    """A host whose SSH connection has a round trip of 50 ms."""
    sim = ("-m", "eaglemon.sim.host", "--gpus", "1")
    async with program(*sim, until=b"driver state") as said:
        port = re.search(r"-p (\d+)", said)
        identity = re.search(r"-i (\S+)", said)
        known = re.search(r"UserKnownHostsFile=(\S+)", said)
        login = re.search(r"(\S+)@(\S+)\n", said)
        if port is None or identity is None or known is None or login is None:
            raise SystemExit(f"the simulated host said: {said}")
        to = ("--to", f"127.0.0.1:{port[1]}", "--round-trip-ms", f"{ROUND_TRIP_S * 1000:g}")
        async with program("delay_proxy.py", *to) as line:
            proxy = line.strip()
            mine = folder / "known_hosts"
            copy_keys(Path(known[1]), mine, port[1], proxy)
            yield HostSpec(
                name="distant",
                address=login[2],
                user=login[1],
                port=int(proxy),
                identity=identity[1],
                known_hosts=str(mine),
                ssh_config="",
            )


def times_of(port: int) -> list[list[float]]:
    """Return what the engine did for each answer since the last question."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/truth", timeout=10) as answer:
        times: list[list[float]] = json.load(answer)
    return times


def truth_of(port: int, requests: int) -> Truth:
    """Return what the engine really did for the last answers."""
    times = times_of(port)[-requests:]
    late = sorted(behind for *_, behind in times)
    return Truth(
        tok_s=statistics.median((TOKENS - 1) / (last - first) for _, first, last, _ in times),
        ttft_s=statistics.median(first - arrived for arrived, first, *_ in times),
        late_s=late[int(0.99 * (len(late) - 1))],
    )


async def probe(hub: Hub, port: int, kind: str, users: int, *, from_host: bool) -> Row:
    """Probe the engine once."""
    host = hub.hosts()[0].name
    prompts = tuple(Prompt(id=f"p{i}", text=f"Say word {i}.") for i in range(8))
    plan = ProbePlan(
        workload="mock",
        prompts=prompts,
        requests=REQUESTS[users],
        concurrency=users,
        warmup=users,
        max_tokens=TOKENS,
        nonce="b",
        from_host=from_host,
    )
    target = await hub.reach(f"http://127.0.0.1:{port}", host=host)
    times_of(port)
    done = await hub.probe(target, plan)
    truth = truth_of(port, REQUESTS[users])
    figures, generator = done.figures, done.generator
    assert figures.decode_tok_s is not None
    assert figures.ttft_s is not None
    link_s = ROUND_TRIP_S if host == "distant" and not from_host else 0.0
    return Row(
        tokens=kind,
        link="50 ms" if host == "distant" else "loopback",
        client="**from the host**" if from_host else "from here",
        users=users,
        seen=probe_peers.Seen(
            tok_s=figures.decode_tok_s.median,
            ttft_s=figures.ttft_s.median - link_s,
            accept_length=figures.accept_length,
            bad=figures.failed + figures.cut,
        ),
        truth=truth,
        claims_ttft=done.claims_first_tokens,
        claims_speed=done.claims_speed,
        cpu_share=generator.cpu_share if generator else None,
        lag_s=generator.lag_p95_s if generator else None,
        lagging=generator.lagging if generator else None,
    )


async def peer(
    port: int,
    kind: str,
    users: int,
    name: str,
    run: Callable[..., Awaitable[probe_peers.Seen]],
) -> Row:
    """Run another generator on the engine, on this machine."""
    times_of(port)
    seen = await run(port, users=users, requests=REQUESTS[users])
    truth = truth_of(port, REQUESTS[users])
    return Row(tokens=kind, link="loopback", client=name, users=users, seen=seen, truth=truth)


async def in_time(what: str, tries: int, once: Callable[[], Awaitable[Row]]) -> Row:
    """Measure a row; again while it is off and its generator says that it was late."""
    number = 0
    while True:
        number += 1
        try:
            async with asyncio.timeout(ROW_LIMIT_S + probe_peers.LIMIT_S):
                row = await once()
        except TimeoutError as error:
            raise SystemExit(f"{what}: not done within its limit") from error
        print(*row.cells(), file=sys.stderr, flush=True)
        if not row.lagging or row.verdict() == "yes" or number >= tries:
            return replace(row, tries=number)


def peers_of(given: argparse.Namespace) -> dict[str, Callable[..., Awaitable[probe_peers.Seen]]]:
    """Return the other generators that were named, by what they are called."""
    found: dict[str, Callable[..., Awaitable[probe_peers.Seen]]] = {}
    if given.vllm_python:
        found["vllm bench serve"] = lambda port, **load: probe_peers.vllm_bench(
            given.vllm_python, given.tokenizer, port, **load
        )
    if given.guidellm:
        found["guidellm"] = lambda port, **load: probe_peers.guidellm(
            given.guidellm, given.tokenizer, port, **load
        )
    return found


async def measure(given: argparse.Namespace, folder: Path) -> list[Row]:
    """Return all rows."""
    rows: list[Row] = []
    levels = [int(level) for level in given.levels.split(",")]
    async with distant_host(folder) as distant:
        local = HostSpec(
            name="local", transport="local", env={"XDG_STATE_HOME": str(folder / "state")}
        )
        hosts = {"loopback": local, "distant": distant}
        specs = [hosts[name] for name in given.links.split(",")]
        for kind, spec in itertools.product(("one", "spec"), specs):
            async with (
                program("mock_engine.py", "--tokens", kind) as line,
                Hub(
                    (spec,), ProfileStore.load(), connect=transport_to, workload=load_workload
                ) as hub,
            ):
                port = int(line)
                for users, from_host in itertools.product(levels, (True, False)):
                    once = partial(probe, hub, port, kind, users, from_host=from_host)
                    what = f"{kind}, {spec.name}, {users} users"
                    rows.append(await in_time(what, given.tries, once))
                named = peers_of(given) if spec is local else {}
                for (name, run), users in itertools.product(named.items(), levels):
                    beside = partial(peer, port, kind, users, name, run)
                    rows.append(await in_time(f"{name}, {users} users", 1, beside))
    return rows


def table_of(rows: Sequence[Row], loads: tuple[float, float]) -> str:
    """Return the table as Markdown, with what it was measured under."""
    columns = NAMES.split("|")
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(row.cells())} |" for row in rows]
    conditions = (
        f"One run: {os.cpu_count()} cores for all processes together, Python "
        f"{platform.python_version()}, load average {loads[0]:.1f} when it began and "
        f"{loads[1]:.1f} when it ended. First token {TTFT_S * 1000:g} ms after the request had "
        f"arrived; then one token every {GAPS_S['one'] * 1000:g} ms (*one*) or 1 to 4, 2.5 on "
        f"average, every {GAPS_S['spec'] * 1000:g} ms (*spec*); {TOKENS} tokens an answer."
    )
    return "\n".join([*lines, "", conditions])


def write_into(path: Path, table: str) -> None:
    """Put the table between its marks in a page."""
    before, _, rest = path.read_text("utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{path} has no marks {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", "utf-8")


def main() -> None:
    """Measure all paths and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vllm-python", help="an interpreter that has vLLM")
    parser.add_argument("--guidellm", help="the program guidellm")
    parser.add_argument("--tokenizer", help="a model folder with a tokenizer, for both")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--links", default="loopback,distant")
    parser.add_argument("--tries", type=int, default=3, help="for runs that were marked as late")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="put the table there, too")
    given = parser.parse_args()
    if (given.vllm_python or given.guidellm) and not given.tokenizer:
        parser.error("other generators need --tokenizer")
    folder = Path(tempfile.mkdtemp())
    began = os.getloadavg()[0]
    try:
        rows = asyncio.run(measure(given, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = table_of(rows, (began, os.getloadavg()[0]))
    print(table)
    if given.write:
        write_into(given.write, table)


if __name__ == "__main__":
    main()
