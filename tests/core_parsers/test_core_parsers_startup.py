"""The start-up track and the clock of stamps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.phases import PHASE_ORDER, LogReady, Phase, PhaseEntered, PhaseProgress
from eaglemon.core.startup import StampClock, StartupTrack
from eaglemon.core.views import PhaseState, PhaseView


def _states(track: StartupTrack, now: float) -> dict[Phase, PhaseState]:
    return {view.phase: view.state for view in track.views(now)}


def _view(track: StartupTrack, phase: Phase, now: float) -> PhaseView:
    return next(view for view in track.views(now) if view.phase is phase)


def test_phases_with_times_and_progress() -> None:
    track = StartupTrack(100.0)
    assert track.current is Phase.SPAWN
    track.enter(Phase.IMPORT, 101.0)
    track.apply(PhaseEntered(phase=Phase.LOAD_TARGET), 110.0)
    track.apply(PhaseProgress(phase=Phase.LOAD_TARGET, done=1, total=4), 115.0)
    assert (track.current, track.progress, track.last_progress_at) == (
        Phase.LOAD_TARGET,
        (1, 4),
        115.0,
    )
    target = _view(track, Phase.LOAD_TARGET, 120.0)
    assert (target.started_s, target.elapsed_s, target.done, target.total) == (10.0, 10.0, 1, 4)
    states = _states(track, 120.0)
    assert states[Phase.SPAWN] is PhaseState.DONE
    assert states[Phase.DISTRIBUTED_INIT] is PhaseState.SKIPPED
    assert states[Phase.LOAD_TARGET] is PhaseState.ACTIVE
    assert states[Phase.LOAD_DRAFT] is PhaseState.PENDING


def test_stages_of_the_graph_capture() -> None:
    track = StartupTrack(0.0)
    track.apply(PhaseEntered(phase=Phase.GRAPH_CAPTURE, stage="target-prefill"), 10.0)
    track.apply(
        PhaseProgress(phase=Phase.GRAPH_CAPTURE, stage="target-prefill", done=3, total=9), 15.0
    )
    track.apply(PhaseEntered(phase=Phase.GRAPH_CAPTURE, stage="target-verify"), 20.0)
    assert (track.current_stage, track.progress) == ("target-verify", None)
    track.enter(Phase.HTTP_OPEN, 26.0)
    view = _view(track, Phase.GRAPH_CAPTURE, 99.0)
    assert [(s.name, s.started_s, s.elapsed_s, s.done) for s in view.stages] == [
        ("target-prefill", 10.0, 10.0, 3),
        ("target-verify", 20.0, 6.0, None),
    ]
    assert view.elapsed_s == 16.0
    assert track.current_stage is None


def test_a_phase_out_of_order_gets_its_own_time() -> None:
    """Some releases load the draft after the target's graphs."""
    track = StartupTrack(0.0)
    track.enter(Phase.LOAD_TARGET, 1.0)
    track.enter(Phase.GRAPH_CAPTURE, 5.0, stage="target")
    track.enter(Phase.LOAD_DRAFT, 9.0)
    track.apply(PhaseProgress(phase=Phase.LOAD_DRAFT, done=1, total=2), 10.0)
    assert (track.current, track.progress) == (Phase.GRAPH_CAPTURE, (1, 2))
    assert _states(track, 11.0)[Phase.LOAD_DRAFT] is PhaseState.ACTIVE
    track.enter(Phase.GRAPH_CAPTURE, 12.0, stage="draft-decode")
    draft = _view(track, Phase.LOAD_DRAFT, 20.0)
    assert (draft.state, draft.started_s, draft.elapsed_s) == (PhaseState.DONE, 9.0, 3.0)
    assert track.current_stage == "draft-decode"


def test_failure_and_end() -> None:
    track = StartupTrack(0.0)
    track.enter(Phase.KV_CACHE, 4.0)
    track.fail(6.0)
    track.enter(Phase.READY, 7.0)
    track.apply(LogReady(), 7.0)
    view = _view(track, Phase.KV_CACHE, 50.0)
    assert (view.state, view.elapsed_s) == (PhaseState.FAILED, 2.0)
    assert (track.current, track.ended) == (Phase.KV_CACHE, True)
    # The end of a process may be known before the last lines of its log.
    track.apply(PhaseEntered(phase=Phase.GRAPH_CAPTURE), 7.0)
    track.apply(PhaseEntered(phase=Phase.LOAD_DRAFT), 7.0)
    states = _states(track, 50.0)
    assert states[Phase.GRAPH_CAPTURE] is PhaseState.FAILED
    assert states[Phase.KV_CACHE] is PhaseState.DONE
    assert states[Phase.LOAD_DRAFT] is PhaseState.SKIPPED
    done = StartupTrack(0.0)
    done.enter(Phase.READY, 9.0)
    done.finish(9.5)
    assert _view(done, Phase.READY, 50.0).state is PhaseState.DONE
    done.stop(60.0)
    assert _view(done, Phase.READY, 70.0).state is PhaseState.DONE
    stopped = StartupTrack(0.0)
    stopped.enter(Phase.IMPORT, 1.0)
    stopped.stop(3.0)
    view = _view(stopped, Phase.IMPORT, 50.0)
    assert (view.state, view.elapsed_s) == (PhaseState.ENDED, 2.0)


def test_old_log_takes_the_stamps_times() -> None:
    track = StartupTrack(1000.0)
    track.apply(PhaseEntered(phase=Phase.KV_CACHE), 5000.0, stamp_s=33.0)
    assert _view(track, Phase.KV_CACHE, 5000.0).started_s == 33.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PHASE_ORDER),
            st.sampled_from([None, "a", "b"]),
            st.floats(0, 100),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_any_order_keeps_the_track_sound(
    moves: list[tuple[Phase, str | None, float, bool]],
) -> None:
    track = StartupTrack(0.0)
    furthest = 0
    for phase, stage, step, bar in moves:
        if bar:
            track.apply(PhaseProgress(phase=phase, stage=stage, done=1, total=2), step)
        else:
            track.enter(phase, step, stage=stage)
            furthest = max(furthest, PHASE_ORDER.index(phase))
        assert PHASE_ORDER.index(track.current) == furthest
        views = track.views(200.0)
        assert [view.phase for view in views] == list(PHASE_ORDER)
        assert sum(view.state is PhaseState.ACTIVE for view in views) in {1, 2}
        for view in views:
            assert view.elapsed_s is None or view.elapsed_s >= 0
            later = PHASE_ORDER.index(view.phase) > furthest
            assert (view.state is PhaseState.PENDING) == later


@pytest.mark.parametrize(
    ("launched_at", "stamps", "expected"),
    [
        (None, ["2026-11-29 14:35:30", "2026-11-29 14:36:00.500"], [0.0, 30.5]),
        # 1795962901 is 14:35:01 UTC; the host's clock is 5 h 30 min ahead.
        (1795962901.8, ["2026-11-29 20:05:26", "2026-11-29 20:05:56"], [24.2, 54.2]),
        # A stamp is cut to whole seconds: the same second as the launch is not before it.
        (1795962901.8, ["2026-11-29 14:35:01", "2026-11-29 14:35:03"], [0.0, 2.0]),
        (None, ["12-31 23:59:50", "01-01 00:00:20"], [0.0, 30.0]),
    ],
)
def test_stamps(launched_at: float | None, stamps: list[str], expected: list[float]) -> None:
    clock = StampClock(launched_at)
    assert [clock.seconds(stamp) for stamp in stamps] == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("text", [None, "", "soon", "2026-13-40 99:99:99"])
def test_no_stamp(text: str | None) -> None:
    assert StampClock().seconds(text) is None
