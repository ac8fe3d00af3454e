"""Readings of the metrics path as they may come: cut at any byte, with odd numbers, slow, dead."""

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglemon.app.meter import Meter
from eaglemon.app.server_metrics import read_gauges
from eaglemon.core.prometheus import parse_metrics
from eaglemon.engines import ENGINES
from eaglemon.engines.base import Gauges
from eaglemon.io.http import HttpClient, HttpError, HttpLimits
from eaglemon.io.local import LocalTransport
from tests.probes.scripted_server import ABORT, EOF, HANG, Script, ScriptedServer, Step

CAPTURES = Path(__file__).parents[1] / "captures"
SCRAPES = {
    "sglang": CAPTURES / "sglang-0.5.16-h200" / "eagle3-right" / "after_metrics.txt",
    "vllm": CAPTURES / "vllm-0.32-cpu" / "metrics" / "part-after.prom",
}
READ = re.compile(
    r"(?:vllm|sglang):(?:spec_|generation_tokens_total|num_\w*re|\w*usage|gen_throughput)"
)
"""Lines of which something is read."""
LIMITS = HttpLimits(connect_s=30.0, read_s=30.0)
HASTY = HttpLimits(connect_s=30.0, read_s=0.4)


@pytest.mark.parametrize("engine", SCRAPES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_text_whatsoever_breaks_a_reading(engine: str, data: st.DataObject) -> None:
    lines = SCRAPES[engine].read_text("utf-8").splitlines()
    wanted = [i for i, line in enumerate(lines) if READ.match(line)]
    odd = st.sampled_from(["NaN", "+Inf", "-Inf", "-1", "1e300", "x", "", "0x10", "1_000"])
    for index in data.draw(st.lists(st.sampled_from(wanted), max_size=12)):
        lines[index] = lines[index].rpartition(" ")[0] + " " + data.draw(odd)
    text = "\n".join(lines)
    text = text[: data.draw(st.integers(0, len(text)))]
    gauges = ENGINES[engine].gauges(parse_metrics(text))
    meter = Meter(ceiling=6)
    meter.scrape_seen(Gauges(generation_tokens=1.0), at=0.0, wall=0.0)
    meter.scrape_seen(gauges, at=2.0, wall=2.0)
    meter.scrape_seen(gauges, at=4.0, wall=4.0)
    meter.acceptance(4.0)
    meter.load(4.0)


@pytest.mark.parametrize("engine", SCRAPES)
async def test_a_reading_that_was_cut_counts_for_nothing(engine: str) -> None:
    """Half a number is a number: a counter that seems to fall would be taken for a restart."""
    whole = SCRAPES[engine].read_bytes()
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    for body in (whole[:-40], whole[: len(whole) // 2 - 3].rstrip()):
        with pytest.raises(HttpError, match="cut off"):
            await asked(engine, [head + body, EOF])
    assert await asked(engine, [head + whole, EOF]) is not None


SLOW: list[Step] = [b"# a\n", 0.1]
BROKEN: dict[str, Script] = {
    "silent": [HANG],
    "dies": [b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nsglang:x 1\n", ABORT],
    "no-http": [b"\x00\x01\x02\r\n\r\n", ABORT],
    "slow": [b"HTTP/1.1 200 OK\r\n\r\n", *SLOW * 60],
    "damaged": [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nsglang:x 1\n", EOF],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_server_that_does_not_answer_well(name: str) -> None:
    with pytest.raises(HttpError):
        await asked("sglang", BROKEN[name], HASTY)


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_metrics_that_are_refused_are_not_there(status: int) -> None:
    answer = b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status
    assert await asked("sglang", [answer]) is None


def test_what_is_no_number_is_not_known() -> None:
    text = "sglang:num_running_reqs NaN\nsglang:gen_throughput +Inf\nsglang:num_queue_reqs 2\n"
    gauges = ENGINES["sglang"].gauges(parse_metrics(text))
    assert (gauges.running, gauges.tok_s, gauges.waiting) == (None, None, 2)


async def asked(engine: str, script: Script, limits: HttpLimits = LIMITS) -> Gauges | None:
    """Return one reading of a server that answers its metrics as the script says."""
    async with asyncio.timeout(60), ScriptedServer(lambda _: script, played="/metrics") as server:
        http = HttpClient(LocalTransport(), address="127.0.0.1", port=server.port)
        try:
            return await read_gauges(http, ENGINES[engine], limits=limits)
        finally:
            await http.close()
