"""The history of measurements: one SQLite file, raw observations, written by one thread.

WAL with full synchronisation: what a call has returned from outlasts a loss of power, and a call
that was cut off leaves nothing behind. Errors of SQLite come out as ``StoreError``.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from eaglemon.core.experiment import Arm, ExperimentPlan
from eaglemon.core.experiment_records import (
    Displaced,
    Environment,
    ExperimentRecord,
    ExperimentSummary,
    LaunchIntent,
    Startup,
)
from eaglemon.core.redact import MASK, is_secret, mask_argv, mask_env
from eaglemon.core.verdict import Trial
from eaglemon.errors import StoreError
from eaglemon.io import store_queries as queries
from eaglemon.io.claims import held
from eaglemon.io.migrations import migrate
from eaglemon.io.paths import user_state_folder

Result = TypeVar("Result")

BUSY_S = 5.0
"""How long another console may keep the store locked."""
KEPT_S = 365 * 86400.0
KEPT_BYTES = 512 * 1024**2
KEPT_STARTUPS = 5000


def default_path() -> Path:
    """Return the file of this user's history."""
    return user_state_folder() / "history.sqlite3"


class Store:
    """An open history. Every method waits on the store's own thread; use ``close`` at the end."""

    def __init__(self, path: Path | None = None, *, busy_s: float = BUSY_S) -> None:
        """Nothing is opened yet: the first call does, and raises ``StoreError`` if it cannot."""
        self.path = path or default_path()
        self._busy_s = busy_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def close(self) -> None:
        """Close the file and end the thread; may be called twice."""
        if self._closed:
            return
        self._closed = True
        await asyncio.wrap_future(self._thread.submit(self._shut))
        self._thread.shutdown(wait=False)

    # Reading.

    async def experiments(self, limit: int = 50) -> list[ExperimentSummary]:
        """Return the newest experiments first."""
        found = await self._do(lambda db: queries.summaries(db, limit))
        return [replace(one, under_way=self._under_way(one.id, one.outcome)) for one in found]

    async def experiment(self, text: str) -> ExperimentRecord:
        """Return the experiment of this id or beginning of one, or the newest for ``last``.

        Raises ``StoreError`` when there is none, or more than one.
        """

        def find(db: sqlite3.Connection) -> ExperimentRecord | None:
            names = queries.find_experiment(db, "" if text == "last" else text)
            if text not in {*names, "last"} and len(names) > 1:
                raise StoreError(f"{text!r} begins {len(names)} runs", hint=", ".join(names[:4]))
            chosen = text if text in names else (names or [""])[0]
            return queries.load(db, chosen)

        record = await self._do(find)
        if record is None:
            raise StoreError(f"no run {text!r} in the history", hint="eaglemon runs lists them")
        return replace(record, under_way=self._under_way(record.plan.id, record.outcome))

    async def unfinished(self) -> list[str]:
        """Return the ids of experiments without an end: cut off, then under way; newest first."""
        names = await self._do(queries.unfinished)
        return sorted(names, key=lambda name: self._under_way(name, ""))

    def _under_way(self, experiment: str, outcome: str) -> bool:
        return not outcome and held(self.path.parent, experiment)

    async def startups(self, host: str, digest: str, limit: int = 20) -> list[Startup]:
        """Return the newest starts of a profile on a host first."""
        return await self._do(lambda db: queries.startups(db, host, digest, limit))

    async def startups_of(self, profile: str, limit: int = 20) -> list[Startup]:
        """Return the newest starts of what has a profile's name, on any host, first."""
        return await self._do(lambda db: queries.startups_of(db, profile, limit))

    async def size_bytes(self) -> int:
        """Return the bytes in use."""
        return await self._do(queries.size_bytes)

    # Writing.

    async def begin(self, plan: ExperimentPlan, *, at: float) -> None:
        """Note an experiment before its first step; secrets are left out."""
        text = _json(replace(plan, arms=tuple(map(_masked, plan.arms))))
        await self._write(
            "INSERT INTO experiments (id, kind, created_at, plan) VALUES (?, ?, ?, ?)",
            (plan.id, plan.kind, at, text),
        )

    async def finish(self, experiment: str, outcome: str, *, at: float) -> None:
        """Note the end of an experiment."""
        await self._write(
            "UPDATE experiments SET outcome = ?, ended_at = ? WHERE id = ?",
            (outcome, at, experiment),
        )

    async def note_failure(self, experiment: str, arm: int, reason: str) -> None:
        """Note why an arm failed."""
        await self._write(
            "INSERT INTO arms (experiment, arm, failure) VALUES "
            "((SELECT number FROM experiments WHERE id = ?), ?, ?) "
            "ON CONFLICT DO UPDATE SET failure = excluded.failure",
            (experiment, arm, reason),
        )

    async def note_given_up(self, experiment: str, arm: int, reason: str) -> None:
        """Note why an arm that works is measured no further."""
        await self._write(
            "INSERT INTO arms (experiment, arm, given_up) VALUES "
            "((SELECT number FROM experiments WHERE id = ?), ?, ?) "
            "ON CONFLICT DO UPDATE SET given_up = excluded.given_up",
            (experiment, arm, reason),
        )

    async def note_environment(self, experiment: str, arm: int, environment: Environment) -> None:
        """Note what an arm was measured on."""
        await self._write(
            "INSERT INTO arms (experiment, arm, environment) VALUES "
            "((SELECT number FROM experiments WHERE id = ?), ?, ?) "
            "ON CONFLICT DO UPDATE SET environment = excluded.environment",
            (experiment, arm, _json(environment)),
        )

    async def add_trial(self, experiment: str, trial: Trial) -> None:
        """Add a measurement with all its requests, as one step."""

        def add(db: sqlite3.Connection) -> None:
            counts = trial.counter_difference
            cursor = db.execute(
                "INSERT OR REPLACE INTO trials (experiment, arm, round, server_id, started_at, "
                "startup_s, turn_s, memory_bytes, counter_difference, notes) VALUES "
                "((SELECT number FROM experiments WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(experiment, trial.arm, trial.round, trial.server_id, trial.started_at),
                    *(trial.startup_s, trial.turn_s, trial.memory_bytes),
                    None if counts is None else _json(counts),
                    json.dumps(trial.notes),
                ),
            )
            db.executemany(
                "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(cursor.lastrowid, one.number, one.prompt_id, one.status.value),
                        *(one.sent_at, one.took_s),
                        queries.TOKENS_UNTOLD
                        if one.completion_tokens is None
                        else one.completion_tokens,
                        one.prompt_tokens,
                        None if one.counts is None else _json(one.counts),
                        one.error,
                        queries.pack_arrivals(one.arrivals),
                    )
                    for one in trial.records
                ],
            )

        await self._change(add)

    async def note_launch(
        self, experiment: str, arm: int, planned: Arm, before: frozenset[str]
    ) -> LaunchIntent:
        """Note that a launch is about to be made, so that a later console finds its server."""
        line, name = planned.shell_line, planned.profile.name

        def add(db: sqlite3.Connection) -> int:
            cursor = db.execute(
                "INSERT INTO launches (experiment, arm, host, profile, shell_line, known_before) "
                "VALUES ((SELECT number FROM experiments WHERE id = ?), ?, ?, ?, ?, ?)",
                (experiment, arm, planned.host, name, line, json.dumps(sorted(before))),
            )
            return int(cursor.lastrowid or 0)

        return LaunchIntent(
            number=await self._change(add),
            arm=arm,
            host=planned.host,
            profile=name,
            shell_line=line,
            before=before,
        )

    async def note_launched(self, intent: LaunchIntent, server_id: str) -> LaunchIntent:
        """Note the server that a launch gave."""
        await self._write(
            "UPDATE launches SET server_id = ? WHERE number = ?", (server_id, intent.number)
        )
        return replace(intent, server_id=server_id)

    async def note_ended(self, intent: LaunchIntent) -> None:
        """Note that nothing is left of a launch."""
        await self._write("UPDATE launches SET ended = 1 WHERE number = ?", (intent.number,))

    async def note_displaced(self, experiment: str, server: Displaced) -> None:
        """Note a server that is about to make room."""
        await self._write(
            "INSERT OR REPLACE INTO displaced VALUES "
            "((SELECT number FROM experiments WHERE id = ?), ?, ?)",
            (experiment, server.server_id, _json(server)),
        )

    async def add_startup(self, startup: Startup) -> None:
        """Add the account of a start; a second one of the same server is left out."""
        await self._write(
            "INSERT OR IGNORE INTO startups (server_id, host, profile, digest, engine, "
            "launched_at, ready_s, cause, phases) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(startup.server_id, startup.host, startup.profile, startup.digest),
                *(startup.engine, startup.launched_at, startup.ready_s, startup.cause),
                _json(startup.phases),
            ),
        )

    async def delete(self, experiment: str) -> None:
        """Forget an experiment."""
        await self._write("DELETE FROM experiments WHERE id = ?", (experiment,))

    async def prune(
        self, *, now: float, kept_s: float = KEPT_S, kept_bytes: int = KEPT_BYTES
    ) -> list[str]:
        """Forget ended experiments older than ``kept_s``, then the oldest beyond ``kept_bytes``.

        Returns their ids. What is under way stays.
        """

        def prune(db: sqlite3.Connection) -> list[str]:
            gone: list[str] = []
            rows = db.execute(
                "SELECT id, ended_at FROM experiments WHERE ended_at IS NOT NULL ORDER BY number"
            ).fetchall()
            for name, ended_at in rows:
                if ended_at >= now - kept_s and queries.size_bytes(db) <= kept_bytes:
                    continue
                db.execute("DELETE FROM experiments WHERE id = ?", (name,))
                gone.append(name)
            db.execute(
                "DELETE FROM startups WHERE number <= (SELECT max(number) FROM startups) - ?",
                (KEPT_STARTUPS,),
            )
            return gone

        gone = await self._change(prune)
        await self._do(lambda db: db.execute("PRAGMA incremental_vacuum").fetchall())
        return gone

    # Inside.

    async def _write(self, statement: str, values: tuple[object, ...]) -> None:
        await self._change(lambda db: db.execute(statement, values))

    async def _change(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        def whole(db: sqlite3.Connection) -> Result:
            with _transaction(db):
                return work(db)

        return await self._do(whole)

    async def _do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return await asyncio.wrap_future(self._thread.submit(self._on_thread, work))

    def _on_thread(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            if self._connection is None:
                self._connection = self._open()
            return work(self._connection)
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise StoreError(f"{self.path}: {_words(error)}", hint=_hint(error)) from error

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.touch(mode=0o600)
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise StoreError(f"{self.path}: cannot be opened: {reason}") from error
        connection = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None)
        try:
            # Takes effect only before the first table.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            migrate(connection)
        except LookupError as error:
            connection.close()
            raise StoreError(
                f"{self.path}: was written by a newer eaglemon",
                hint="update eaglemon, or move the file away",
            ) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _shut(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled back by itself.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _masked(arm: Arm) -> Arm:
    profile = arm.profile
    flags = {name: MASK if is_secret(name) else value for name, value in profile.flags.items()}
    settings = {
        name: MASK if is_secret(name.removeprefix("env.")) else value
        for name, value in arm.settings.items()
    }
    env = mask_env(dict(profile.env))
    shown = replace(profile, flags=flags, env=env, command=tuple(mask_argv(profile.command)))
    return replace(arm, profile=shown, settings=settings)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _words(error: Exception) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]


def _hint(error: Exception) -> str:
    text = str(error)
    if "locked" in text or "busy" in text:
        return "another program holds it: close it and try again"
    if "full" in text:
        return "free some room, or shorten the history with eaglemon runs prune"
    if "malformed" in text or "not a database" in text:
        return "move the file away; a new one is made"
    return ""
