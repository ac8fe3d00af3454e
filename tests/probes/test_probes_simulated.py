"""Probes over SSH on the simulated host: from the host itself, and with forced accept lengths."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from eaglemon.app.calibration import calibrate
from eaglemon.app.hub import Hub
from eaglemon.core.capacity import capacity_of
from eaglemon.core.views import ServerView
from eaglemon.errors import ServerError
from eaglemon.io.config import ProfileStore
from eaglemon.io.connect import transport_to
from eaglemon.io.workloads import load_workload
from eaglemon.sim.host import SimHost
from tests.ports import free_port

LIMIT_S = 90.0
SMALL = {"requests": "4", "max-tokens": "64", "warmup": "1", "concurrency": "2"}


@asynccontextmanager
async def console() -> AsyncIterator[tuple[Hub, str]]:
    """A hub on a fresh simulated host."""
    async with (
        SimHost(speed=20.0) as spec,
        Hub((spec,), ProfileStore.load(), connect=transport_to, workload=load_workload) as hub,
        asyncio.timeout(LIMIT_S),
    ):
        await hub.settle()
        yield hub, spec.name


async def started(hub: Hub, host: str, profile: str) -> str:
    server_id = await hub.launch(hub.plan(profile, host, {"port": str(free_port())}))
    view = await hub.wait(server_id, timeout_s=LIMIT_S)
    assert view.state.answering, view.detail
    return server_id


async def test_both_paths_agree_and_the_view_shows_it() -> None:
    async with console() as (hub, host):
        server_id = await started(hub, host, "sglang-eagle3")
        own = await hub.probe(server_id, hub.probe_plan(server_id, SMALL))
        here = await hub.probe(
            server_id, hub.probe_plan(server_id, {**SMALL, "from-host": "false"})
        )

        assert (own.driver, here.driver) == ("the host itself", "this machine, over the connection")
        assert own.figures.ok == here.figures.ok == 4
        # How fast is the machine's doing, which is busy now and then.
        assert own.figures.user_tok_s
        assert here.figures.user_tok_s
        assert own.foreign_tokens is not None
        view = hub.find(server_id)
        assert view.probe == here
        assert any("measured from this machine" in note for note in here.notes)
        assert not any("measured from this machine" in note for note in own.notes)
        assert not here.claims_first_tokens
        spans = await until(hub, server_id, lambda view: since_ready(view) is not None)
        assert since_ready(spans) == pytest.approx(here.figures.accept_length, rel=0.25)
        assert spans.acceptance is not None
        assert (spans.acceptance.source, spans.acceptance.ceiling) == ("counters", 6)
        assert spans.load is not None
        labels = [label for label, _ in spans.load.tok_s_windows]
        assert labels[-1] == "since ready"
        assert set(labels) <= {"5 s", "60 s", "since ready"}
        # The same server by its address, as one that nobody of us has started.
        target = await hub.reach(f"http://127.0.0.1:{view.port}", host=host)
        reached = await hub.probe(target, hub.probe_plan(target, SMALL))
        assert reached.figures.accept_length == pytest.approx(own.figures.accept_length, rel=0.5)
        assert reached.server_id == target


def since_ready(view: ServerView) -> float | None:
    windows = view.acceptance.windows if view.acceptance else ()
    return next((w.accept_length for w in windows if w.label == "since ready"), None)


async def until(hub: Hub, server_id: str, holds: Callable[[ServerView], bool]) -> ServerView:
    """Return the first view of the server that is as wanted."""
    async for _ in hub.updates():
        if holds(view := hub.find(server_id)):
            return view
    raise AssertionError("the console has ended")


async def test_without_metrics_the_view_reads_the_log_and_says_how_to_turn_them_on() -> None:
    async with console() as (hub, host):
        blind = {"port": str(free_port()), "enable-metrics": "false"}
        server_id = await hub.launch(hub.plan("sglang-eagle3", host, blind))
        assert (await hub.wait(server_id, timeout_s=LIMIT_S)).state.answering
        long = {**SMALL, "requests": "2", "max-tokens": "240", "warmup": "0", "ignore-eos": "true"}
        done = await hub.probe(server_id, hub.probe_plan(server_id, long))

        def told(view: ServerView) -> bool:
            # That there are no metrics is known after the first look for them.
            return (
                view.acceptance is not None
                and view.acceptance.source == "log line"
                and view.acceptance.hint != ""
            )

        view = await until(hub, server_id, told)
        assert view.acceptance is not None
        assert view.acceptance.accept_length == pytest.approx(done.figures.accept_length, rel=0.5)
        assert view.acceptance.windows == ()
        assert "--enable-metrics" in view.acceptance.hint
        assert view.load is not None
        assert (view.load.source, view.load.tok_s_windows) == ("log line", ())
        assert done.foreign_tokens is None
        assert any("--enable-metrics" in note for note in done.notes)


async def test_forced_accept_lengths_and_the_server_is_back() -> None:
    async with console() as (hub, host):
        server_id = await started(hub, host, "sglang-eagle3")
        plan = hub.probe_plan(server_id, {**SMALL, "concurrency": "1"})
        measured = await hub.probe(server_id, plan)
        said: list[str] = []

        forced = await calibrate(hub, server_id, plan, (1.0, 6.0), say=said.append)

        lengths = [probe.figures.accept_length for probe in forced]
        assert lengths == pytest.approx([1.0, 6.0], rel=0.02)
        slow, fast = (probe.figures.user_tok_s for probe in forced)
        assert slow is not None
        assert fast is not None
        # Six tokens for one in as many steps; a busy machine makes some steps longer.
        assert fast > 1.5 * slow
        # A step costs the same whatever it accepts: the measured run predicts the forced ones.
        found = capacity_of(measured.figures, forced[0].figures, concurrency=1)
        assert found is not None
        again = [server for server in hub.snapshot().servers if not server.state.ended]
        assert [server.profile for server in again] == ["sglang-eagle3"]
        assert again[0].state.answering
        assert "SIMULATE_ACC_LEN" not in again[0].command_line
        assert said[0] == f"stopping {server_id}"
        assert sum("forced accept length" in line for line in said) == 2
        assert len(said) == 7


async def test_what_cannot_be_forced_is_told_before_anything_stops() -> None:
    async with console() as (hub, host):
        server_id = await started(hub, host, "sglang-baseline")
        plan = hub.probe_plan(server_id, SMALL)
        with pytest.raises(ServerError, match="does not speculate"):
            await calibrate(hub, server_id, plan, (2.0,), say=lambda _: None)
        assert hub.find(server_id).state.answering
        probe = await hub.probe(server_id, plan)
        assert probe.figures.counts is None
        assert hub.find(server_id).acceptance is None
