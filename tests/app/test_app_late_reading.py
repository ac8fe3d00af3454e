"""A log that is read long after it was written gives the times of one that was read live."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

from eaglemon.app.meter import Meter
from eaglemon.app.server_log import ServerLog
from eaglemon.core.phases import Phase
from eaglemon.core.runs import LogChunk
from eaglemon.core.startup import parse_stamp
from eaglemon.core.views import PhaseState, PhaseView
from eaglemon.engines import engine_named
from eaglemon.io.host_link import HostLink

CAPTURES = Path(__file__).parents[1] / "captures/sglang-0.5.16-h200"
BEFORE_FIRST_STAMP_S = 3.0
LATE_S = 159.0


class HandClock:
    """A clock that is set by hand; wall and monotonic seconds are the same."""

    def __init__(self, at: float) -> None:
        self.at = at

    def wall(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Written:
    """A link whose log comes in pieces, each at a time of its own."""

    def __init__(self, clock: HandClock, pieces: list[tuple[float, bytes]]) -> None:
        self._clock = clock
        self._pieces = pieces

    async def follow_log(
        self, run_id: str, *, offset: int = 0, ahead_bytes: int = 0
    ) -> AsyncGenerator[LogChunk, None]:
        del run_id, ahead_bytes
        for at, data in self._pieces:
            self._clock.at = max(self._clock.at, at)
            yield LogChunk(offset=offset, data=data)
            offset += len(data)


def _lines(log: bytes) -> list[tuple[float, bytes]]:
    """Return each line with the second it was written in, as its stamp or the last one says."""
    found: list[tuple[float, bytes]] = []
    at: float | None = None
    for line in log.splitlines(keepends=True):
        stamp = parse_stamp(line[:40].decode("utf-8", "replace"))
        at = at if stamp is None else stamp
        found.append((at or 0.0, line))
    first = next(at for at, _ in found if at)
    return [(at or first - BEFORE_FIRST_STAMP_S, line) for at, line in found]


async def _read(
    pieces: list[tuple[float, bytes]], *, launched_at: float, now: float, history_bytes: int
) -> tuple[ServerLog, HandClock]:
    clock = HandClock(now)
    log = ServerLog(
        engine_named("sglang").log_rules,
        meter=Meter(ceiling=None),
        clock=clock,
        heard=lambda _: None,
    )
    if history_bytes:
        log.catch_up(
            launched_at=launched_at,
            age_s=now - launched_at,
            history_bytes=history_bytes,
            spawned=True,
        )
    # What a keeper does on finding that the run lives, and that its server answers.
    log.enter(Phase.IMPORT)
    if history_bytes:
        log.enter(Phase.WARM_UP)
        log.enter(Phase.READY)
        log.finish()
    await log.follow(cast("HostLink", Written(clock, pieces)), "run")
    return log, clock


def _seen(views: tuple[PhaseView, ...]) -> dict[Phase, PhaseView]:
    return {view.phase: view for view in views if view.started_s is not None}


@pytest.mark.parametrize("name", ["baseline", "eagle3-right", "eagle3-wrongwired"])
@pytest.mark.parametrize("told_share", [1.0, 0.5], ids=["all told", "grown since"])
async def test_times_read_late_are_those_read_live(name: str, told_share: float) -> None:
    whole = (CAPTURES / name / "server.log").read_bytes()
    lines = _lines(whole)
    launched_at = lines[0][0]
    live, _ = await _read(lines, launched_at=launched_at, now=launched_at, history_bytes=0)
    ended_at = lines[-1][0]
    late, clock = await _read(
        [(0.0, whole)],
        launched_at=launched_at,
        now=ended_at + LATE_S,
        history_bytes=int(len(whole) * told_share),
    )
    before, after = _seen(live.track.views(ended_at)), _seen(late.track.views(clock.at))
    assert late.track.ended
    assert set(before) <= set(after)
    for phase, view in before.items():
        assert after[phase].started_s == pytest.approx(view.started_s, abs=1.0), phase
        if view.state is PhaseState.DONE:
            assert after[phase].elapsed_s == pytest.approx(view.elapsed_s, abs=1.0), phase
    assert (after[Phase.READY].started_s or 0.0) <= ended_at - launched_at + 1.0
    assert Phase.WARM_UP not in after or (after[Phase.WARM_UP].started_s or 0.0) < LATE_S


async def test_a_failure_read_late_ends_when_the_process_did() -> None:
    whole = (CAPTURES / "fail-oom/server.log").read_bytes()
    lines = _lines(whole)
    launched_at, ended_at = lines[0][0], lines[-1][0]
    clock = HandClock(ended_at + LATE_S)
    log = ServerLog(
        engine_named("sglang").log_rules,
        meter=Meter(ceiling=None),
        clock=clock,
        heard=lambda _: None,
    )
    log.catch_up(
        launched_at=launched_at,
        age_s=clock.at - launched_at,
        history_bytes=len(whole),
        spawned=True,
    )
    log.fail(ended_at)
    await log.follow(cast("HostLink", Written(clock, [(0.0, whole)])), "run")
    (failed,) = [v for v in log.track.views(clock.at) if v.state is PhaseState.FAILED]
    assert failed.phase is log.track.current
    assert failed.phase not in {Phase.SPAWN, Phase.IMPORT}
    assert (failed.started_s or 0.0) + (failed.elapsed_s or 0.0) == pytest.approx(
        ended_at - launched_at, abs=1.0
    )
