"""How far a probe's figures are from the truth, by path, link and concurrency; prints a table.

The mock engine, the delaying proxy, the simulated host's SSH server and this console are processes
of their own on this machine. Errors are against what the engine really did, as it tells.

    python benchmarks/probe_accuracy.py [--vllm-python /path/to/python --tokenizer /path/to/model]
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from mock_engine import TOKENS, accept_counts, running_totals

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
VLLM_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run beside the truth."""

    tokens: str
    link: str
    client: str
    users: int
    tok_s: float
    true_tok_s: float
    ttft_s: float
    true_ttft_s: float
    accept_length: float | None = None
    true_accept_length: float | None = None
    cpu_share: float | None = None
    lagging: bool | None = None
    tries: int = 1
    bad: int = 0

    def cells(self) -> list[str]:
        """Return the row as it is printed."""
        off = (self.tok_s / self.true_tok_s - 1) * 100
        late = (self.ttft_s - self.true_ttft_s) * 1000
        accept = "-"
        if self.accept_length is not None and self.true_accept_length is not None:
            accept = f"{(self.accept_length / self.true_accept_length - 1) * 100:+.2f} %"
        return [
            self.tokens,
            self.link,
            self.client,
            str(self.users),
            f"{self.tok_s:.2f}",
            f"{off:+.2f} %",
            f"{self.ttft_s * 1000:.1f}",
            f"{late:+.1f} ms",
            accept,
            "-" if self.cpu_share is None else f"{self.cpu_share * 100:.0f} %",
            "-" if self.lagging is None else ("marked" if self.lagging else "no"),
            str(self.tries),
            str(self.bad),
        ]


@contextlib.asynccontextmanager
async def program(*argv: str) -> AsyncIterator[str]:
    """Run a program until the end of the block; yields the first line that ends in a number."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=HERE,
    )
    assert process.stdout is not None
    try:
        first = await process.stdout.readline()
        if argv[0] == "-m":
            first += await process.stdout.readuntil(b"driver state")
        yield first.decode()
    finally:
        process.terminate()
        await process.wait()


def copy_keys(known: Path, mine: Path, port: str, proxy: str) -> None:
    """Write the host's keys as those of the proxy's port."""
    mine.write_text(known.read_text().replace(f":{port} ", f":{proxy} "))


@contextlib.asynccontextmanager
async def distant_host(folder: Path) -> AsyncIterator[HostSpec]:
    """A host whose SSH connection has a round trip of 50 ms."""
    async with program("-m", "eaglemon.sim.host", "--gpus", "1") as said:
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
    """Return when each answer since the last question arrived, began and ended."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/truth") as answer:
        times: list[list[float]] = json.load(answer)
    return times


def truth_of(port: int, warmup: int) -> tuple[float, float]:
    """Return what the engine really did since the last question: tok/s per user and TTFT."""
    times = times_of(port)[warmup:]
    speeds = [(TOKENS - 1) / (last - first) for _, first, last in times]
    return statistics.median(speeds), statistics.median(f - arrived for arrived, f, _ in times)


async def probe_in_time(
    hub: Hub, port: int, kind: str, users: int, *, from_host: bool, tries: int
) -> Row:
    """Probe the engine; again while the generator says that it was late: the machine is shared."""
    number = 0
    while True:
        number += 1
        row = await probe(hub, port, kind, users, from_host=from_host)
        print(*row.cells(), file=sys.stderr)
        if not row.lagging or number >= tries:
            return replace(row, tries=number)


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
    true_tok_s, true_ttft_s = truth_of(port, users)
    figures, generator = done.figures, done.generator
    assert figures.decode_tok_s is not None
    assert figures.ttft_s is not None
    steps, histogram = accept_counts(kind)
    accepted = sum(k * count for k, count in enumerate(histogram))
    link_s = ROUND_TRIP_S if host == "distant" and not from_host else 0.0
    return Row(
        tokens=kind,
        link="50 ms" if host == "distant" else "loopback",
        client="from the host" if from_host else "from here",
        users=users,
        tok_s=figures.decode_tok_s.median,
        true_tok_s=true_tok_s,
        ttft_s=figures.ttft_s.median - link_s,
        true_ttft_s=true_ttft_s,
        accept_length=figures.accept_length if kind == "spec" else None,
        true_accept_length=1 + accepted / steps,
        cpu_share=generator.cpu_share if generator else None,
        lagging=generator.lagging if generator else None,
        bad=figures.failed + figures.cut,
    )


async def vllm_bench(python: str, tokenizer: str, port: int, kind: str, users: int) -> Row:
    """Run ``vllm bench serve`` on the engine."""
    with tempfile.TemporaryDirectory() as folder:
        times_of(port)
        process = await asyncio.create_subprocess_exec(
            *(python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai"),
            *("--base-url", f"http://127.0.0.1:{port}", "--endpoint", "/v1/completions"),
            *("--model", "mock", "--tokenizer", tokenizer, "--dataset-name", "random"),
            *("--random-input-len", "16", "--random-output-len", str(TOKENS)),
            *("--num-prompts", str(REQUESTS[users]), "--max-concurrency", str(users)),
            *("--num-warmups", str(users), "--ignore-eos", "--disable-tqdm", "--save-result"),
            *("--result-dir", folder, "--result-filename", "result.json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
        )
        async with asyncio.timeout(VLLM_LIMIT_S):
            said, _ = await process.communicate()
        path = Path(folder) / "result.json"
        if not path.exists():
            raise SystemExit(f"vllm bench serve failed:\n{said.decode()[-2000:]}")
        result = json.loads(path.read_text())
    true_tok_s, true_ttft_s = truth_of(port, users)
    return Row(
        tokens=kind,
        link="loopback",
        client="vllm bench serve",
        users=users,
        tok_s=1000 / result["median_tpot_ms"],
        true_tok_s=true_tok_s,
        ttft_s=result["median_ttft_ms"] / 1000,
        true_ttft_s=true_ttft_s,
        bad=REQUESTS[users] - result["completed"],
    )


async def main() -> None:
    """Measure all paths and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vllm-python", help="an interpreter that has vLLM")
    parser.add_argument("--tokenizer", help="a model folder with a tokenizer, for vLLM")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--links", default="loopback,distant")
    parser.add_argument("--tries", type=int, default=3, help="for runs that were marked as late")
    given = parser.parse_args()
    levels = [int(level) for level in given.levels.split(",")]
    folder = Path(tempfile.mkdtemp())
    rows: list[Row] = []
    try:
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
                        (spec,),
                        ProfileStore.load(),
                        connect=transport_to,
                        workload=load_workload,
                    ) as hub,
                ):
                    for users, from_host in itertools.product(levels, (True, False)):
                        row = await probe_in_time(
                            hub,
                            int(line),
                            kind,
                            users,
                            from_host=from_host,
                            tries=given.tries,
                        )
                        rows.append(row)
                    if spec is local and given.vllm_python:
                        for users in levels:
                            row = await vllm_bench(
                                given.vllm_python, given.tokenizer, int(line), kind, users
                            )
                            rows.append(row)
                            print(*row.cells(), file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    names = "tokens|link|load|users|tok/s|error|TTFT ms|error|accept length|CPU|lag|tries|bad"
    print(f"| {' | '.join(names.split('|'))} |")
    print(f"|{'---|' * len(names.split('|'))}")
    for row in rows:
        print(f"| {' | '.join(row.cells())} |")
    print(f"\n{len(running_totals('spec'))} and {len(running_totals('one'))} chunks an answer")


if __name__ == "__main__":
    asyncio.run(main())
