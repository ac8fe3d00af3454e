from dataclasses import replace

import pytest

from eaglemon.cli.logs import shown
from eaglemon.cli.progress import Progress
from eaglemon.core.phases import Phase
from eaglemon.core.probe import ProbePlan, Prompt
from eaglemon.core.views import PhaseState, PhaseView, ServerState, StopView
from tests.cli.fake_console import failed, probe, server, stopped


def test_each_phase_is_told_once() -> None:
    progress = Progress()
    view = server(ServerState.STARTING)
    assert progress.lines(view) == [
        "[    1.0 s] spawn: done in 1.0 s",
        "[    9.0 s] import: done in 8.0 s",
    ]
    assert progress.lines(view) == []


def test_a_long_phase_is_told_while_it_lasts() -> None:
    progress = Progress()
    phase = PhaseView(
        phase=Phase.LOAD_TARGET,
        state=PhaseState.ACTIVE,
        started_s=9.0,
        elapsed_s=1.0,
        done=1,
        total=4,
    )
    view = server(ServerState.STARTING, phases=(phase,))
    assert progress.lines(view) == []
    later = replace(view, phases=(replace(phase, elapsed_s=6.0),))
    assert progress.lines(later) == ["[    9.0 s] target: under way, 1 of 4"]
    assert progress.lines(later) == []


def test_stalls_failures_and_stops_are_told() -> None:
    progress = Progress()
    stalled = server(ServerState.STARTING, stalled=True, detail="nothing moves", phases=())
    assert progress.lines(stalled) == ["[   50.0 s] stalled: nothing moves"]
    assert progress.lines(replace(failed(), phases=())) == [
        "[   50.0 s] failed: CUDA out of memory"
    ]
    assert progress.lines(replace(stopped(), phases=())) == [
        "[    2.0 s] TERM sent to 4 processes",
        "[    2.0 s] all gone",
    ]


@pytest.mark.parametrize("state", [PhaseState.DONE, PhaseState.ACTIVE, PhaseState.ENDED])
def test_a_stop_tells_nothing_of_the_start(state: PhaseState) -> None:
    phase = PhaseView(phase=Phase.IMPORT, state=state, started_s=1.0, elapsed_s=9.0)
    assert Progress().lines(replace(stopped(), phases=(phase,))) == [
        "[    2.0 s] TERM sent to 4 processes",
        "[    2.0 s] all gone",
    ]


def test_told_times_never_run_back() -> None:
    progress = Progress()
    token = PhaseView(phase=Phase.READY, state=PhaseState.DONE, started_s=5.0, elapsed_s=0.2)
    stop = StopView(steps=("waiting for GPU memory",), elapsed_s=1.6)
    back = StopView(steps=("waiting for GPU memory", "GPU memory is back"), elapsed_s=1.3)
    ready = server(ServerState.READY, phases=(token,), age_s=4.8, stop=stop)
    assert progress.lines(ready) + progress.lines(replace(ready, stop=back)) == [
        "[    5.2 s] token: done in 0.2 s",
        "[    5.2 s] ready",
        "[    1.6 s] waiting for GPU memory",
        "[    1.6 s] GPU memory is back",
    ]


def test_a_stop_whose_host_is_lost_goes_on_with_the_stop_s_time() -> None:
    progress = Progress()
    phase = PhaseView(phase=Phase.IMPORT, state=PhaseState.DONE, started_s=1.0, elapsed_s=2.0)
    sent = StopView(steps=("TERM sent to 4 processes",), elapsed_s=1.4)
    stopping = server(ServerState.STOPPING, phases=(), age_s=4.0)
    lost = server(ServerState.LOST, phases=(phase,), age_s=4.8, detail="cut")
    back = server(ServerState.STOPPING, phases=(phase,), age_s=5.4, stop=sent)
    assert [line for view in (stopping, lost, back) for line in progress.lines(view)] == [
        "[    0.8 s] lost: cut",
        "[    1.4 s] TERM sent to 4 processes",
    ]


def test_a_wait_for_memory_is_told_once() -> None:
    progress = Progress()
    stop = StopView(steps=("waiting for 116.0 GiB to come back",), elapsed_s=1.0)
    view = server(ServerState.RELEASING, stop=stop, phases=())
    assert len(progress.lines(view)) == 1
    less = replace(stop, steps=("waiting for 99.0 GiB to come back",))
    assert progress.lines(replace(view, stop=less)) == []


def test_a_probe_is_told_in_about_ten_lines() -> None:
    progress = Progress()
    plan = ProbePlan(
        workload="chat", prompts=(Prompt(id="a", text="b"),), requests=200, concurrency=1
    )
    lines: list[str] = []
    for done in range(201):
        state = replace(probe(plan, state="running"), done=done)
        lines += progress.lines(server(ServerState.BUSY, probe=state, phases=()))
    assert 10 <= len(lines) <= 12
    assert "200 of 200 requests" in lines[-1]


def test_log_lines_cannot_steer_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "a\x1b[2J\x1b[?25l\x1b]0;title\x07\tb\x1b[31mred\x1b[0m\x9b\x07"
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert shown([hostile]) == [hostile]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert shown([hostile]) == ["a\tb\x1b[31mred\x1b[0m"]
