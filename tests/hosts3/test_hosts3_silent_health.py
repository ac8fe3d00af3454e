"""A server whose port accepts and whose health path never answers does not start for ever."""

from dataclasses import replace
from pathlib import Path

from eaglemon.app.seen import Seen
from eaglemon.core.lifecycle import ServerMachine
from eaglemon.core.lifecycle_events import (
    Event,
    HealthSeen,
    LaunchAsked,
    PreflightPassed,
    SetTimer,
    Spawned,
    StatusSeen,
    Timer,
    TokenSeen,
)
from eaglemon.core.profiles import Limits
from eaglemon.core.views import HealthVerdict, HealthView, PhaseState, ServerState
from tests.cases4.conftest import Desk, console, desk
from tests.ports import free_port

SILENT = HealthSeen(verdict=HealthVerdict.TIMED_OUT, silent_s=90.0)
# Takes connections and says nothing; more of them than the kernel would hold back.
MUTE = """
import socket, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
with socket.create_server(("127.0.0.1", port), backlog=1000) as one:
    kept = []
    while True:
        kept.append(one.accept())
"""


def after(*events: Event) -> ServerMachine:
    machine = ServerMachine(Limits())
    for event in events:
        machine.handle(event)
    return machine


def test_it_is_unhealthy_past_its_limit_however_it_came_to_be_known() -> None:
    launched = (LaunchAsked(), PreflightPassed(), Spawned(pid=7))
    for events in (launched, (StatusSeen(living=1),)):
        soon = replace(SILENT, silent_s=89.0)
        assert after(*events, soon).state is ServerState.STARTING
        late = after(*events, soon, SILENT)
        assert late.state is ServerState.UNHEALTHY
        assert late.silent


def test_what_answers_again_goes_on_from_where_it_was() -> None:
    starting = after(StatusSeen(living=1), SILENT, HealthSeen(verdict=HealthVerdict.STARTING))
    assert starting.state is ServerState.STARTING
    assert not starting.silent
    ready = after(StatusSeen(living=1), SILENT, HealthSeen(verdict=HealthVerdict.OK), TokenSeen())
    assert ready.state is ServerState.READY
    assert not ready.silent


def test_a_server_that_is_found_has_had_part_of_its_time() -> None:
    for age_s, left_s in ((0.0, 1800.0), (1000.0, 800.0), (90_000.0, 90.0)):
        commands = ServerMachine(Limits()).handle(StatusSeen(living=1, age_s=age_s))
        assert SetTimer(timer=Timer.READY, after_s=left_s) in commands


def test_the_silence_is_counted_from_the_first_question_that_was_not_answered() -> None:
    seen = Seen()
    late = HealthView(verdict=HealthVerdict.TIMED_OUT, polls=1, age_s=0.0)
    assert seen.note_health(late, 100.0, 125.0) == 25.0
    # The link was down: nothing is known of the server.
    assert seen.note_health(replace(late, verdict=HealthVerdict.UNKNOWN), 130.0, 131.0) == 31.0
    assert seen.note_health(late, 140.0, 165.0) == 65.0
    assert seen.note_health(replace(late, verdict=HealthVerdict.STARTING), 166.0, 166.1) == 0.0
    assert seen.silent_since is None


async def test_a_mute_server_is_told_by_whoever_launched_it_and_whoever_finds_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "launch_server.py").write_text(MUTE, encoding="utf-8")
    settings = {
        "env.PYTHONPATH": str(tmp_path),
        "limits.health_total_s": "0.3",
        "limits.hung_s": "2",
    }
    async with desk() as d:
        settings["port"] = str(free_port())
        # Its engine is none that the check would let pass.
        server = await d.hub.launch(d.hub.plan("sglang-eagle3", "sim", settings), force=True)
        told = await d.until(server, lambda view: "listening" in view.detail or view.state.ended)
        assert "listening, /health" in told.detail
        async with console(d.spec) as other:
            for one in (d, Desk(other, d.spec, d.sim)):
                view = await one.until(
                    server, lambda view: view.state is ServerState.UNHEALTHY or view.state.ended
                )
                assert view.detail.startswith("hung: listening, /health")
                assert "has not answered for" in view.detail
        stopped = await d.hub.stop(server, grace_s=2.0)
        # What was under way has ended with it, and takes no longer.
        states = [phase.state for phase in stopped.phases]
        assert PhaseState.ACTIVE not in states
        assert PhaseState.ENDED in states
