"""The history: what goes in comes out, secrets do not go in, faults are told in words."""

import asyncio
import hashlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.experiment_records import Displaced, Environment, PhaseTime, Startup
from eaglemon.core.speculation import AcceptCounts
from eaglemon.errors import StoreError
from eaglemon.io.migrations import MIGRATIONS
from eaglemon.io.store import Store
from tests.experiments.arms import arm
from tests.stats.trials import trial


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(tmp_path / "state" / "history.sqlite3", busy_s=0.2)
    yield opened
    await opened.close()


def plan(name: str = "ab-1") -> ExperimentPlan:
    return ExperimentPlan(id=name, arms=(arm("base"), arm("spec", steps=3)))


def startup(server_id: str = "s1") -> Startup:
    return Startup(
        server_id=server_id,
        host="gpu-a",
        profile="base",
        digest="d1",
        engine="sglang",
        launched_at=100.0,
        ready_s=42.0,
        phases=(PhaseTime(phase="import", started_s=0.0, elapsed_s=9.5),),
    )


async def test_an_experiment_comes_back_whole(store: Store) -> None:
    planned = plan()
    await store.begin(planned, at=1000.0)
    intent = await store.note_launch("ab-1", 1, planned.arms[1], frozenset({"other"}))
    intent = await store.note_launched(intent, "s1")
    await store.add_startup(startup())
    first = trial(0, 0, [10.0, 20.0], accepted=150)
    second = replace(
        trial(1, 0, [11.0, 21.0]),
        counter_difference=AcceptCounts(steps=9, accepted=9),
        notes=("busy",),
        memory_bytes=5,
    )
    await store.add_trial("ab-1", first)
    await store.add_trial("ab-1", second)
    await store.note_failure("ab-1", 1, "no memory")
    await store.note_given_up("ab-1", 0, "at most 0.80 x spec")
    environment = Environment(
        host="gpu-a", engine="sglang", engine_version="1", resolved={"page_size": "1"}
    )
    await store.note_environment("ab-1", 1, environment)
    moved = Displaced(server_id="old", host="gpu-a", profile="p", shell_line="serve")
    await store.note_displaced("ab-1", moved)

    found = await store.experiment("ab")
    assert found.plan == planned
    assert found.trials == (first, second)
    assert found.failures == {1: "no memory"}
    assert found.given_up == {0: "at most 0.80 x spec"}
    assert found.environments == {1: environment}
    assert found.displaced == (moved,)
    assert found.intents == (intent,)
    assert found.startups == (startup(),)
    assert found.outcome == ""
    assert await store.unfinished() == ["ab-1"]

    await store.note_ended(intent)
    await store.finish("ab-1", "done", at=1100.0)
    (line,) = await store.experiments()
    assert (line.arms, line.trials, line.requests, line.outcome) == (("base", "spec"), 2, 4, "done")
    assert (await store.experiment("last")).intents == ()
    assert await store.unfinished() == []


async def test_a_trial_measured_again_replaces_the_first(store: Store) -> None:
    await store.begin(plan(), at=0.0)
    await store.add_trial("ab-1", trial(0, 0, [10.0, 20.0]))
    await store.add_trial("ab-1", trial(0, 0, [30.0]))
    found = await store.experiment("ab-1")
    assert [len(one.records) for one in found.trials] == [1]


async def test_answers_that_tell_no_tokens_come_back_as_such(store: Store) -> None:
    whole = trial(0, 0, [10.0])
    (record,) = whole.records
    arrivals = tuple(replace(one, tokens=None) for one in record.arrivals)
    untold = replace(record, completion_tokens=None, arrivals=arrivals)
    await store.begin(plan(), at=0.0)
    await store.add_trial("ab-1", replace(whole, records=(untold,)))
    assert (await store.experiment("ab-1")).trials[0].records == (untold,)


async def test_starts_are_kept_by_host_and_profile(store: Store) -> None:
    await store.add_startup(startup())
    await store.add_startup(replace(startup(), ready_s=1.0))
    await store.add_startup(replace(startup("s2"), ready_s=50.0))
    found = await store.startups("gpu-a", "d1")
    assert [(one.server_id, one.ready_s) for one in found] == [("s2", 50.0), ("s1", 42.0)]
    assert await store.startups("gpu-b", "d1") == []


async def test_secrets_stay_out_and_the_server_key_stays(store: Store) -> None:
    one = arm("base", **{"api-key": "geheim"})  # type: ignore[arg-type]
    profile = replace(one.profile, env={"HF_TOKEN": "geheim"})
    one = replace(one, profile=profile, settings={"env.HF_TOKEN": "geheim"})
    await store.begin(ExperimentPlan(id="x", arms=(one,)), at=0.0)
    found = await store.experiment("x")
    assert found.plan.arms[0].server_key == one.server_key
    await store.close()
    assert b"geheim" not in b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


async def test_unknown_and_ambiguous_names_are_told(store: Store) -> None:
    with pytest.raises(StoreError, match="no run 'last'"):
        await store.experiment("last")
    await store.begin(plan("ab-1"), at=0.0)
    await store.begin(plan("ab-2"), at=0.0)
    with pytest.raises(StoreError, match="begins 2 runs"):
        await store.experiment("ab")


async def test_the_history_is_bounded_by_age_and_size(store: Store) -> None:
    day = 86400.0
    for number in range(6):
        name = f"ab-{number}"
        await store.begin(plan(name), at=number * day)
        await store.add_trial(name, trial(0, 0, [10.0 + number] * 200))
        if number < 5:
            await store.finish(name, "done", at=number * day)
    assert await store.prune(now=5 * day, kept_s=3.5 * day) == ["ab-0", "ab-1"]
    before = await store.size_bytes()
    assert await store.prune(now=5 * day, kept_bytes=before - 1) == ["ab-2"]
    assert await store.prune(now=5 * day, kept_bytes=1) == ["ab-3", "ab-4"]
    assert [one.id for one in await store.experiments()] == ["ab-5"]


async def test_a_locked_store_is_told_and_works_again_later(store: Store) -> None:
    await store.begin(plan(), at=0.0)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked; another program"):
        await store.finish("ab-1", "done", at=1.0)
    other.execute("ROLLBACK")
    other.close()
    await store.finish("ab-1", "done", at=1.0)
    assert (await store.experiment("ab-1")).outcome == "done"


async def test_a_full_disk_is_told_and_leaves_whole_trials_only(store: Store) -> None:
    await store.begin(plan(), at=0.0)
    await store.add_trial("ab-1", trial(0, 0, [10.0] * 5))
    await store._do(lambda db: db.execute("PRAGMA max_page_count = 1").fetchall())
    with pytest.raises(StoreError, match="full; free some room"):
        await store.add_trial("ab-1", trial(1, 0, [10.0 + i for i in range(900)]))
    found = await store.experiment("ab-1")
    assert [(one.arm, len(one.records)) for one in found.trials] == [(0, 5)]


async def test_what_is_no_history_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    path.write_bytes(b"no database " * 100)
    store = Store(path)
    with pytest.raises(StoreError, match="not a database; move the file"):
        await store.experiments()
    await store.close()


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "history.sqlite3")
    with pytest.raises(StoreError, match="cannot be opened"):
        await store.experiments()
    await store.close()


async def test_a_newer_history_is_left_alone(store: Store) -> None:
    await store.experiments()
    await store._do(lambda db: db.execute("PRAGMA user_version = 99").fetchall())
    await store.close()
    with pytest.raises(StoreError, match="newer eaglemon"):
        await Store(store.path).experiments()


async def test_two_consoles_open_a_new_history_at_once(tmp_path: Path) -> None:
    stores = [Store(tmp_path / "h.sqlite3") for _ in range(4)]
    lists = await asyncio.gather(*(store.experiments() for store in stores))
    assert lists == [[]] * 4
    for store in stores:
        await store.close()


def test_released_migrations_never_change() -> None:
    digests = [
        hashlib.sha256("\n".join(" ".join(s.split()) for s in step).encode()).hexdigest()[:16]
        for step in MIGRATIONS
    ]
    assert digests == ["03e15dcbc145fe9c", "32fe5c9ab1ae1ec2"]


async def test_an_older_history_keeps_what_was_given_up_apart_from_failures(store: Store) -> None:
    await store.begin(plan(), at=0.0)
    await store.note_failure("ab-1", 0, "no memory")
    await store.note_failure("ab-1", 1, "given up: at most 0.80 x base")
    await store._do(lambda db: db.execute("ALTER TABLE arms DROP COLUMN given_up").fetchall())
    await store._do(lambda db: db.execute("PRAGMA user_version = 1").fetchall())
    await store.close()
    newer = Store(store.path)
    found = await newer.experiment("ab-1")
    await newer.close()
    assert found.failures == {0: "no memory"}
    assert found.given_up == {1: "at most 0.80 x base"}


WRITER = """
import asyncio, sys
from pathlib import Path
from eaglemon.core.experiment import ExperimentPlan
from eaglemon.io.store import Store
from tests.experiments.arms import arm
from tests.stats.trials import trial

async def main():
    store = Store(Path(sys.argv[1]))
    await store.begin(ExperimentPlan(id="ab-1", arms=(arm("a"), arm("b"))), at=0.0)
    number = 0
    while True:
        await store.add_trial("ab-1", trial(0, number, [10.0 + i for i in range(300)]))
        number += 1
        print(number, flush=True)

asyncio.run(main())
"""


async def test_a_console_killed_while_writing_loses_nothing_that_was_told(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite3"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert writer.stdout is not None
    told = 0
    for line in writer.stdout:
        told = int(line)
        if told == 5:
            os.kill(writer.pid, signal.SIGKILL)
            break
    writer.wait()
    writer.stdout.close()
    store = Store(path)
    found = await store.experiment("ab-1")
    assert len(found.trials) >= told
    assert {len(one.records) for one in found.trials} == {300}
    (check,) = await store._do(lambda db: db.execute("PRAGMA integrity_check").fetchall())
    assert check == ("ok",)
    await store.close()
