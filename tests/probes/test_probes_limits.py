"""Every remote step of a probe has a limit: what never answers is told, and nothing hangs."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglemon.agent import loadgen
from eaglemon.app import host, probe_loads
from eaglemon.app.plans import probe_plan
from eaglemon.core.probe import Prompt, RequestStatus, tokens_of
from eaglemon.core.profiles import ProbeDefaults
from eaglemon.errors import HostError, ProbeError
from eaglemon.io.agent_link import AgentLink
from eaglemon.io.local import LocalProcess, LocalTransport
from eaglemon.io.workloads import load_workload
from tests.probes.scripted_server import HANG, OK, Script, ScriptedServer, good, local_hub, plan
from tests.probes.test_probes_splits import BODIES, framed, through_generator

Items = AsyncGenerator[Mapping[str, object], None]


class NeverOpens(LocalTransport):
    """A host that lets in, and never starts what is asked for."""

    async def open_process(self, command: str) -> LocalProcess:
        del command
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_host_that_never_opens_a_channel() -> None:
    async with asyncio.timeout(60):
        with pytest.raises(HostError, match=r"did not start within 0\.2 s"):
            await AgentLink.open(NeverOpens("gpu1"), timeout_s=0.2)


async def test_an_agent_that_never_tells_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(link: object, **_: object) -> AsyncGenerator[object, None]:
        await asyncio.Event().wait()
        yield link

    monkeypatch.setattr(host, "FIRST_ANSWER_S", 0.3)
    monkeypatch.setattr(AgentLink, "watch_runs", silent)
    async with local_hub(tmp_path) as hub, asyncio.timeout(60):
        with pytest.raises(HostError, match=r"local is down: its runs were not told within"):
            await hub.reach("http://127.0.0.1:1", host="local")


async def test_a_generator_that_falls_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(link: object, *_: object, **__: object) -> Items:
        yield {"live": {"at": 0.1, "begun": 1, "ended": 0, "tokens": 0}}
        await asyncio.Event().wait()

    monkeypatch.setattr(probe_loads, "SILENCE_LIMIT_S", 0.3)
    monkeypatch.setattr(AgentLink, "run_program", silent)
    async with (
        ScriptedServer(lambda _: good(1, 4)) as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(60),
    ):
        target = await hub.reach(server.url, host="local")
        with pytest.raises(ProbeError, match="generator on local has told nothing for"):
            await hub.probe(target, plan())


async def test_prompts_too_large_for_the_host_are_sent_from_here(tmp_path: Path) -> None:
    """All of them go to the generator in one frame."""
    large = tuple(Prompt(id=f"p{i}", text=f"{i}" * (3 << 20)) for i in range(3))
    assert probe_loads.fits_host(plan(prompts=large[:1], requests=100))
    async with (
        ScriptedServer(lambda _: good(1, 4)) as server,
        local_hub(tmp_path) as hub,
        asyncio.timeout(60),
    ):
        target = await hub.reach(server.url, host="local")
        for prompts, driver, notes in (
            (large[:2], "the host itself", 0),
            (large, "this machine, over the connection", 1),
        ):
            probe = await hub.probe(target, plan(prompts=prompts, request_limit_s=30.0))
            assert probe.figures.ok == 4
            assert probe.driver == driver
            assert sum("too large to be sent" in note for note in probe.notes) == notes


async def test_ctrl_c_keeps_what_had_ended(tmp_path: Path) -> None:
    out = tmp_path / "kept.jsonl"
    script: Script = [OK, HANG]
    async with ScriptedServer(lambda n: good(1, 4) if n < 2 else script) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "eaglemon", "probe", server.url, "--requests", "4"),
            *("--warmup", "0", "--out", str(out)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
        )
        assert process.stderr is not None
        told = b""
        async with asyncio.timeout(90):
            # The third never ends, and that two have is not known to the console at once.
            while b"2 of 4 requests" not in told:
                told += await process.stderr.readline()
            process.send_signal(signal.SIGINT)
            _, said = await process.communicate()

    assert process.returncode == 130
    assert f"2 requests that had ended by then: {out}" in said.decode()
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(one["status"], one["completion_tokens"]) for one in records] == [("ok", 4)] * 2


@pytest.mark.parametrize("asked", [None, 60.0, 7200.0])
def test_a_duration_is_within_the_limit(asked: float | None) -> None:
    given = probe_plan(ProbeDefaults(duration_s=asked), {}, load_workload)
    assert given.total_limit_s == {None: 1800.0, 60.0: 1800.0, 7200.0: 7800.0}[asked]


@pytest.mark.parametrize("name", [name for name in BODIES if name != "vllm-cut"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_stream_cut_at_any_byte_is_never_a_whole_answer(name: str, data: st.DataObject) -> None:
    engine, body = BODIES[name]
    end = body.rindex(b"[DONE]") + len(b"[DONE]")
    at = data.draw(st.integers(0, end - 1))
    framing = data.draw(st.sampled_from(["close", "chunked"]))

    record = through_generator(engine, framed(body[:at], framing, [97] * 40), [])

    assert record.status in {RequestStatus.CUT, RequestStatus.FAILED}
    assert record.completion_tokens == tokens_of(record.arrivals)
    whole = through_generator(engine, framed(body[:end] + b"\n\n", framing, [97] * 40), [])
    assert whole.status is RequestStatus.OK


async def test_arrivals_are_stamped_before_any_is_read() -> None:
    """64 at once, each slow to read: their stamps lie closer together than one reading."""
    inbox = loadgen.Inbox()
    read: list[tuple[int, float]] = []
    done = asyncio.Event()

    def take(number: int, now: float) -> None:
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass
        read.append((number, now))
        if len(read) == 64:
            done.set()

    for number in range(64):
        inbox.put(take, number)
    all_in = time.monotonic()
    # What comes in between the readings is stamped in time as well: it waits for a few of them.
    read_before: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: read_before.append(len(read)))
    async with asyncio.timeout(60):
        await done.wait()

    assert [number for number, _ in read] == list(range(64))
    stamps = [now for _, now in read]
    assert all(b >= a for a, b in itertools.pairwise(stamps))
    assert stamps[-1] <= all_in
    assert read_before[0] <= loadgen.READ_AT_ONCE


async def test_a_reading_that_fails_stops_no_other() -> None:
    inbox = loadgen.Inbox()
    read: list[int] = []
    broken: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: broken.append(what))

    def take(number: int, now: float) -> None:
        del now
        if number == 1:
            raise ValueError(number)
        read.append(number)

    for number in range(12):
        inbox.put(take, number)
    async with asyncio.timeout(60):
        while len(read) < 11:
            await asyncio.sleep(0)
    assert read == [0, *range(2, 12)]
    assert len(broken) == 1


def test_one_long_delay_counts_for_all_that_it_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(loadgen, "TICK_S", 0.25)  # no rounding in sums of it
    monkeypatch.setattr(loadgen, "time", SimpleNamespace(monotonic=lambda: now))
    later: list[float] = []
    loop = SimpleNamespace(call_later=lambda seconds, tick: later.append(seconds))
    monkeypatch.setattr(loadgen, "asyncio", SimpleNamespace(get_event_loop=lambda: loop))
    lag = loadgen.Lag()
    lag.start()
    for _ in range(10):
        now += loadgen.TICK_S
        lag._tick()
    # One delay of twenty ticks: twenty were due in it, the first late by nearly all of it.
    now += 20 * loadgen.TICK_S
    lag._tick()
    assert later == [loadgen.TICK_S] * 12
    assert lag.share(1.0) == 19 * loadgen.TICK_S
    assert lag.share(0.5) == 5 * loadgen.TICK_S
    assert lag.share(0.0) == 0.0


class Listener(loadgen.Connection):
    """Notes when what arrived had arrived."""

    def __init__(self) -> None:
        super().__init__(loadgen.Inbox())
        self.seen: list[tuple[bytes, float | None]] = []
        self.gone = asyncio.Event()

    def arrived(self, data: bytes, at: float | None) -> None:
        self.seen.append((data, at))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.gone.set()


@pytest.fixture
def stamping() -> Iterator[None]:
    """Have the kernel stamp: it begins a moment after the first socket of all asks for it."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0] as far,
    ):
        near.setsockopt(socket.SOL_SOCKET, loadgen.SO_TIMESTAMPNS, 1)
        until = time.monotonic() + 60
        told: list[tuple[int, int, bytes]] = []
        while not told:
            assert time.monotonic() < until, "the kernel stamps nothing"
            far.send(b".")
            _, told, _, _ = near.recvmsg(loadgen.READ_BYTES, loadgen.TOLD_BYTES)
        yield


@pytest.mark.usefixtures("stamping")
async def test_an_arrival_is_stamped_by_the_kernel_however_late_it_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        opened = socket.create_connection(server.getsockname())
        opened.setblocking(False)
        listener = Listener()
        loadgen.Plain(opened, listener)
        far, _ = server.accept()
        with far:
            before = time.monotonic()
            far.send(b"token")
            sent = time.monotonic()
            while time.monotonic() < sent + 0.4:
                pass
            async with asyncio.timeout(60):
                while not listener.seen:
                    await asyncio.sleep(0.01)
        ((data, at),) = listener.seen
        assert data == b"token"
        assert at is not None
        assert before - 0.05 < at < sent + 0.2
        async with asyncio.timeout(60):
            await listener.gone.wait()
    assert not listener.open


async def test_a_request_that_does_not_fit_at_once_is_sent_in_parts() -> None:
    size = 20 << 20
    with socket.create_server(("127.0.0.1", 0)) as server:
        opened = socket.create_connection(server.getsockname())
        opened.setblocking(False)
        listener = Listener()
        transport = loadgen.Plain(opened, listener)
        far, _ = server.accept()
        with far:
            transport.write(b"x" * size)
            got = 0
            async with asyncio.timeout(60):
                while got < size:
                    got += len(await asyncio.to_thread(far.recv, 1 << 20))
            transport.abort()
            async with asyncio.timeout(60):
                await listener.gone.wait()
            transport.abort()
    assert got == size


@pytest.mark.parametrize(
    ("seconds", "known"), [(-0.5, True), (0.5, False), (-3600.0, False)], ids=str
)
def test_a_stamp_of_another_time_is_none(
    seconds: float, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    clock = SimpleNamespace(time=lambda: 1_800_000_000.25, monotonic=lambda: 77.0)
    monkeypatch.setattr(loadgen, "time", clock)
    at = 1_800_000_000.25 + seconds
    data = loadgen.TIMESPEC.pack(int(at), int(at % 1 * 1e9))
    found = loadgen.kernel_stamp([(socket.SOL_SOCKET, loadgen.SO_TIMESTAMPNS, data)])
    assert found == (pytest.approx(77.0 + seconds, abs=1e-6) if known else None)
    assert loadgen.kernel_stamp([]) is None
