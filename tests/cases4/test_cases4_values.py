"""Pure values: time left, stalls, crash loops, what holds memory."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglemon.core.crashes import is_crash_loop
from eaglemon.core.eta import EtaSource, estimate
from eaglemon.core.foreign import ForeignServer, parse_foreign_id
from eaglemon.core.holders import memory_holders, process_holds
from eaglemon.core.hosts import GpuProcess, GpuSample, HostSample
from eaglemon.core.phases import PHASE_ORDER, Phase
from eaglemon.core.profiles import Profile
from eaglemon.core.release import release_of
from eaglemon.core.runs import RunActivity, RunProcess
from eaglemon.core.stall import STALL_LIMITS, has_moved, reads_or_writes, stall_limit
from eaglemon.core.views import PhaseState, PhaseView, StageView

GIB = 1024**3
START = {
    Phase.SPAWN: 1.0,
    Phase.IMPORT: 10.0,
    Phase.LOAD_TARGET: 100.0,
    Phase.KV_CACHE: 5.0,
    Phase.GRAPH_CAPTURE: 40.0,
    Phase.WARM_UP: 2.0,
}


def track(current: Phase, elapsed_s: float, **more: object) -> list[PhaseView]:
    views = []
    for phase in PHASE_ORDER:
        rank = PHASE_ORDER.index(phase) - PHASE_ORDER.index(current)
        state = PhaseState.DONE if rank < 0 else PhaseState.PENDING
        view = PhaseView(phase=phase, state=state)
        if rank == 0:
            view = replace(view, state=PhaseState.ACTIVE, elapsed_s=elapsed_s)
            view = replace(view, **more)  # type: ignore[arg-type]
        views.append(view)
    return views


def test_time_left_from_several_earlier_starts_is_their_range() -> None:
    slow = {phase: 2 * seconds for phase, seconds in START.items()}
    phases, eta = estimate(track(Phase.LOAD_TARGET, 30.0), [START, slow])
    load = next(view for view in phases if view.phase is Phase.LOAD_TARGET)
    assert load.eta_s == (70.0, 170.0)
    assert eta.source is EtaSource.EARLIER
    assert eta.starts == 2
    assert eta.ready_s == (70 + 5 + 40 + 2, 170 + 10 + 80 + 4)


def test_a_single_earlier_start_still_gives_a_range() -> None:
    _, eta = estimate(track(Phase.WARM_UP, 0.0), [START])
    assert eta.ready_s == (1.5, 3.0)


def test_extremes_of_many_starts_are_left_out() -> None:
    starts = [{**START, Phase.LOAD_TARGET: seconds} for seconds in (1.0, 90.0, 100.0, 9000.0)]
    phases, _ = estimate(track(Phase.LOAD_TARGET, 0.0), starts)
    assert phases[PHASE_ORDER.index(Phase.LOAD_TARGET)].eta_s == (90.0, 100.0)


def test_without_history_only_the_rate_of_the_phase_tells() -> None:
    phases, eta = estimate(track(Phase.LOAD_TARGET, 30.0, done=10, total=30), [])
    low, high = phases[PHASE_ORDER.index(Phase.LOAD_TARGET)].eta_s or (0.0, 0.0)
    assert low < 60.0 < high
    assert eta.ready_s is None
    assert eta.source is EtaSource.RATE


def test_a_stage_has_its_own_rate() -> None:
    stage = StageView(name="target-verify", started_s=5.0, elapsed_s=4.0, done=4, total=8)
    phases, _ = estimate(track(Phase.GRAPH_CAPTURE, 60.0, stages=(stage,)), [])
    low, high = phases[PHASE_ORDER.index(Phase.GRAPH_CAPTURE)].eta_s or (0.0, 0.0)
    assert low < 4.0 < high


def test_a_phase_that_takes_longer_than_ever_leaves_the_whole_unknown() -> None:
    phases, eta = estimate(track(Phase.LOAD_TARGET, 500.0), [START])
    assert phases[PHASE_ORDER.index(Phase.LOAD_TARGET)].eta_s is None
    assert eta.ready_s is None


_times = st.dictionaries(
    st.sampled_from(list(Phase)), st.floats(0, 5000, allow_nan=False), max_size=len(Phase)
)


@given(
    st.sampled_from(list(Phase)[:9]),
    st.floats(0, 10_000, allow_nan=False),
    st.lists(_times, max_size=8),
)
def test_time_left_is_a_range_that_is_never_negative(
    phase: Phase, elapsed_s: float, earlier: list[dict[Phase, float]]
) -> None:
    phases, eta = estimate(track(phase, elapsed_s), earlier)
    for one in [*(view.eta_s for view in phases), eta.ready_s]:
        assert one is None or 0 <= one[0] <= one[1]
    assert all(v.eta_s is None for v in phases if v.state is PhaseState.DONE)


def test_every_phase_of_a_start_has_a_stall_limit_and_a_profile_may_change_it() -> None:
    early = PHASE_ORDER[: PHASE_ORDER.index(Phase.READY)]
    assert set(STALL_LIMITS) == set(early)
    assert stall_limit(Phase.GRAPH_CAPTURE, {}) > stall_limit(Phase.SPAWN, {})
    assert stall_limit(Phase.GRAPH_CAPTURE, {"graph-capture": 7.0}) == 7.0


@pytest.mark.parametrize(
    ("after", "moved", "worked"),
    [
        (RunActivity(cpu_s=10.0), False, False),
        (RunActivity(cpu_s=10.1), False, False),
        (RunActivity(cpu_s=13.0), True, False),
        (RunActivity(cpu_s=10.0, log_bytes=1), True, True),
        (RunActivity(cpu_s=10.0, read_bytes=1 << 20), True, True),
        (RunActivity(cpu_s=10.0, read_bytes=100), False, False),
    ],
)
def test_what_counts_as_movement_in_five_seconds(
    after: RunActivity, moved: bool, worked: bool
) -> None:
    before = RunActivity(cpu_s=10.0, read_bytes=0 if after.read_bytes is not None else None)
    assert has_moved(before, after, 5.0) is moved
    assert reads_or_writes(before, after) is worked


@pytest.mark.parametrize(
    ("ends", "loop"),
    [
        ([], False),
        ([900.0, 950.0], False),
        ([900.0, 950.0, 990.0], True),
        ([300.0, 950.0, 990.0], False),
        ([400.0, 700.0, 1000.0], True),
        ([900.0, 950.0, 2000.0], False),
    ],
)
def test_three_ends_within_ten_minutes_are_a_loop(ends: list[float], loop: bool) -> None:
    assert is_crash_loop(ends, 1000.0) is loop


@pytest.mark.parametrize(("state", "word"), [("D", "kernel"), ("Z", "zombie"), ("S", "sudo")])
def test_what_survived_kill_is_named_with_what_helps(state: str, word: str) -> None:
    process = RunProcess(pid=7, start_ticks=1, command="python3 -m x", state=state)
    assert word in process_holds(process)
    assert "PID 7" in process_holds(process)


def test_what_survived_kill_is_told_with_parent_owner_and_container() -> None:
    process = RunProcess(pid=7, start_ticks=1, command="python3 -m x", state="Z", parent=3)
    told = process_holds(process, user="me")
    assert "its parent, PID 3, does not take note (zombie); kill 3" in told
    # Nobody ends the first process of a host.
    assert process_holds(replace(process, parent=1)).endswith("; end its parent")
    theirs = replace(process, state="S", user="eve")
    assert process_holds(theirs, user="me").endswith("is of eve and was not ended; sudo kill -9 7")
    assert "survived KILL: it may be" in process_holds(theirs, user="eve")
    boxed = replace(theirs, container="0123456789ab")
    assert process_holds(boxed, user="me").endswith(
        "in container 0123456789ab survived KILL; docker kill 0123456789ab"
    )


def test_what_holds_memory_is_named_with_the_command_that_helps() -> None:
    holders = [
        GpuProcess(gpu_uuid="G", pid=1, memory_bytes=GIB, user="me"),
        GpuProcess(gpu_uuid="G", pid=2, memory_bytes=4 * GIB, user="eve"),
        GpuProcess(gpu_uuid="G", pid=3, memory_bytes=2 * GIB, user="root", container="abc"),
        GpuProcess(gpu_uuid="G", pid=4, memory_bytes=3 * GIB),
        GpuProcess(gpu_uuid="G", pid=5, memory_bytes=5 * GIB, user="me"),
    ]
    lines = memory_holders(holders, user="me", ours=frozenset({5}))
    assert [line.split("; ")[1].split()[0] for line in lines] == [
        "kill",
        "sudo",
        "sudo",
        "docker",
        "kill",
    ]
    assert "of this run" in lines[0]
    assert "of eve" in lines[1]


def test_gpus_are_counted_as_they_come_back() -> None:
    def sample(*used: int) -> HostSample:
        gpus = tuple(
            GpuSample(index=n, uuid=f"G{n}", memory_used_bytes=one) for n, one in enumerate(used)
        )
        return HostSample(at=1.0, gpus=gpus)

    before = {"G0": 0, "G1": 0}
    half = release_of(sample(0, 9 * GIB), before=before, pids=frozenset())
    assert (half.back, half.gpus_back, half.gpus) == (False, 1, 2)
    whole = release_of(sample(0, 0), before=before, pids=frozenset())
    assert (whole.back, whole.gpus_back) == (True, 2)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("12@gpu-a", (12, "gpu-a")), ("ml@gpu-a", None), ("12", None), ("12@", None), ("@x", None)],
)
def test_the_name_of_a_foreign_server(text: str, parts: tuple[int, str] | None) -> None:
    assert parse_foreign_id(text) == parts


def test_a_foreign_server_that_listens_everywhere_is_asked_on_loopback() -> None:
    profile = Profile(name="x", engine="vllm", model="m", port=8000, address="0.0.0.0")
    server = ForeignServer(
        host="h",
        pid=3,
        start_ticks=1,
        user="eve",
        profile=profile,
        command_line="vllm serve m",
        started_at=0.0,
    )
    assert server.url == "http://127.0.0.1:8000"
    assert "of eve" in str(server)
