"""While a host is silent its servers are not judged, and unread GPU memory is not called back."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from eaglemon.app.health_watch import HealthWatch, Watched
from eaglemon.app.seen import Seen
from eaglemon.app.stop_account import is_unreadable, waits_for
from eaglemon.core.hosts import GpuSample, HostSample
from eaglemon.core.lifecycle_events import Event, HealthSeen
from eaglemon.core.profiles import Limits, Profile
from eaglemon.core.release import release_of
from eaglemon.core.views import HealthVerdict, ServerState
from eaglemon.engines import engine_named
from eaglemon.io.clock import SystemClock
from eaglemon.io.http import HttpClient
from eaglemon.io.local import LocalTransport


@pytest.mark.parametrize(
    ("silent", "lost", "verdict", "said"),
    [
        (True, False, HealthVerdict.UNKNOWN, "gpu-a is silent"),
        (False, True, HealthVerdict.UNKNOWN, "gpu-a was lost"),
        (False, False, HealthVerdict.TIMED_OUT, ""),
    ],
)
async def test_an_answer_that_does_not_come_over_a_silent_or_lost_link_is_no_illness(
    silent: bool, lost: bool, verdict: HealthVerdict, said: str
) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(never, "127.0.0.1", 0)
    http = HttpClient(
        LocalTransport(), address="127.0.0.1", port=listening.sockets[0].getsockname()[1]
    )
    fed: list[Event] = []
    server = SimpleNamespace(
        engine=engine_named("vllm"),
        profile=Profile(
            name="p", engine="vllm", model="m", port=1, limits=Limits(health_total_s=0.2)
        ),
        host=SimpleNamespace(
            is_silent=silent,
            spec=SimpleNamespace(name="gpu-a"),
            link=None,
            is_still=lambda _: not lost,
        ),
        state=ServerState.READY,
        seen=Seen(),
        log=SimpleNamespace(knows_ready=False, track=SimpleNamespace(ended=True)),
        http=lambda: http,
        feed=fed.append,
    )
    await HealthWatch(cast("Watched", server), SystemClock()).poll(0.0)
    await http.close()
    listening.close()
    (event,) = fed
    assert isinstance(event, HealthSeen)
    assert event.verdict is verdict
    assert server.seen.health is not None
    assert said in server.seen.health.detail
    assert ("gpu-a" in server.seen.health.detail) is bool(said)


@pytest.mark.parametrize(
    ("used", "said"),
    [
        (None, "waiting for the driver: GPU memory cannot be read"),
        (8 * 1024**3, "waiting for 8.0 GiB of GPU memory"),
    ],
)
def test_a_stop_says_what_it_waits_for(used: int | None, said: str) -> None:
    gpu = GpuSample(index=0, uuid="GPU-1", memory_used_bytes=used)
    release = release_of(HostSample(at=1.0, gpus=(gpu,)), before={"GPU-1": 0}, pids=frozenset())
    assert waits_for(release) == said
    assert is_unreadable(release) is (used is None)
    assert waits_for(None) == "waiting for GPU memory"
