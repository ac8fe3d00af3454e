"""Memory release: proven by readings, explained by holders, never guessed."""

from eaglemon.core.hosts import GpuProcess, GpuSample, HostSample
from eaglemon.core.release import release_of

GIB = 1024**3
PIDS = frozenset({10, 11})


def sample(used: int | None, *processes: GpuProcess) -> HostSample:
    gpu = GpuSample(index=0, uuid="GPU-a", memory_used_bytes=used, memory_total_bytes=140 * GIB)
    return HostSample(at=1.0, gpus=(gpu,), processes=processes)


def holder(pid: int, used: int | None) -> GpuProcess:
    return GpuProcess(gpu_uuid="GPU-a", pid=pid, memory_bytes=used, user="someone")


def test_back_at_the_level_before() -> None:
    assert release_of(sample(0), before={"GPU-a": 0}, pids=PIDS).back


def test_a_process_that_holds_on_is_named() -> None:
    release = release_of(sample(30 * GIB, holder(11, 30 * GIB)), before={"GPU-a": 0}, pids=PIDS)

    assert not release.back
    assert release.held_bytes == 30 * GIB
    assert [process.pid for process in release.holders] == [11]


def test_memory_without_a_process_is_not_back() -> None:
    release = release_of(sample(30 * GIB), before={"GPU-a": GIB}, pids=PIDS)

    assert not release.back
    assert release.held_bytes == 29 * GIB


def test_what_others_took_since_is_not_ours() -> None:
    taken = sample(50 * GIB, holder(99, 50 * GIB))

    assert release_of(taken, before={"GPU-a": 0}, pids=PIDS).back


def test_what_a_pid_without_a_process_holds_may_be_ours() -> None:
    # As of a worker that was forked and killed within a moment: no status has told its PID.
    gone = GpuProcess(gpu_uuid="GPU-a", pid=99, memory_bytes=50 * GIB)
    release = release_of(sample(50 * GIB, gone), before={"GPU-a": 0}, pids=PIDS)
    assert not release.back
    assert release.held_bytes is None
    assert release.unknown == "whose PID 99 is, which is seen as no process, is not known"
    # It was there before: this host shows none of its processes.
    assert release_of(sample(50 * GIB, gone), before={"GPU-a": 50 * GIB}, pids=PIDS).back
    assert release_of(sample(50 * GIB, gone), before={"GPU-a": 0}, pids={99}).holders == (gone,)


def test_what_was_before_is_not_taken_for_nothing_where_it_is_not_known() -> None:
    release = release_of(sample(30 * GIB), before={"GPU-a": None}, pids=PIDS)
    assert not release.back
    assert release.held_bytes is None
    assert release.unknown == "what was in use before the launch is not known"
    # Whatever it was, this little is nobody's.
    assert release_of(sample(1000), before={"GPU-a": None}, pids=PIDS).back
    told = sample(50 * GIB, holder(99, 50 * GIB))
    assert release_of(told, before={"GPU-a": None}, pids=PIDS).back
    # A process of the run that is still listed is told as such.
    assert not release_of(
        sample(30 * GIB, holder(11, None)), before={"GPU-a": None}, pids=PIDS
    ).unknown


def test_a_process_of_others_whose_memory_is_not_told_may_have_all_of_it() -> None:
    untold = sample(30 * GIB, holder(99, None))
    release = release_of(untold, before={"GPU-a": 0}, pids=PIDS)
    assert not release.back
    assert release.held_bytes is None
    assert release.unknown == "how much PID 99 holds, which is not of this run, is not told"
    assert release_of(untold, before={"GPU-a": 30 * GIB}, pids=PIDS).back


def test_unreadable_is_not_released() -> None:
    release = release_of(sample(None), before={"GPU-a": 0}, pids=PIDS)

    assert not release.back
    assert release.held_bytes is None


def test_a_listed_process_is_not_gone_even_when_the_driver_names_no_size() -> None:
    assert not release_of(sample(0, holder(10, None)), before={"GPU-a": 0}, pids=PIDS).back
