"""What the store is asked: rows back into values. Runs on the store's own thread."""

import json
import sqlite3
import zlib
from typing import TypeVar

import msgspec

from eaglemon.core.experiment import ExperimentPlan
from eaglemon.core.experiment_records import (
    Displaced,
    Environment,
    ExperimentRecord,
    ExperimentSummary,
    LaunchIntent,
    PhaseTime,
    Startup,
)
from eaglemon.core.probe import Arrival, RequestRecord, RequestStatus
from eaglemon.core.speculation import AcceptCounts
from eaglemon.core.verdict import Trial

TOKENS_UNTOLD = -1
"""Stands for an answer that did not tell its tokens: the column takes no NULL."""
Value = TypeVar("Value")
Row = tuple[object, ...]


def pack_arrivals(arrivals: tuple[Arrival, ...]) -> bytes:
    """Return arrivals as compressed JSON pairs of microseconds and tokens."""
    pairs = [[round(arrival.at_s * 1e6), arrival.tokens] for arrival in arrivals]
    return zlib.compress(json.dumps(pairs, separators=(",", ":")).encode())


def unpack_arrivals(blob: bytes) -> tuple[Arrival, ...]:
    """Return what ``pack_arrivals`` packed."""
    pairs = json.loads(zlib.decompress(blob))
    return tuple(Arrival(at_s=at / 1e6, tokens=tokens) for at, tokens in pairs)


def find_experiment(connection: sqlite3.Connection, text: str) -> list[str]:
    """Return the ids that are, or begin with, ``text``, newest first."""
    rows = connection.execute(
        "SELECT id FROM experiments WHERE id = ? OR substr(id, 1, length(?)) = ? "
        "ORDER BY number DESC",
        (text, text, text),
    )
    return [row[0] for row in rows]


def unfinished(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of experiments without an end, newest first."""
    rows = connection.execute("SELECT id FROM experiments WHERE outcome = '' ORDER BY number DESC")
    return [row[0] for row in rows]


def summaries(connection: sqlite3.Connection, limit: int) -> list[ExperimentSummary]:
    """Return the newest experiments first."""
    rows = connection.execute(
        "SELECT id, kind, plan, created_at, ended_at, outcome, "
        "(SELECT count(*) FROM trials WHERE experiment = e.number), "
        "(SELECT count(*) FROM requests JOIN trials ON requests.trial = trials.number "
        " WHERE trials.experiment = e.number) "
        "FROM experiments e ORDER BY number DESC LIMIT ?",
        (limit,),
    )
    found = []
    for name, kind, plan, created_at, ended_at, outcome, trials, requests in rows:
        arms = msgspec.json.decode(plan, type=ExperimentPlan).arms
        found.append(
            ExperimentSummary(
                id=name,
                kind=kind,
                arms=tuple(arm.name for arm in arms),
                hosts=tuple(dict.fromkeys(arm.host for arm in arms)),
                created_at=created_at,
                ended_at=ended_at,
                outcome=outcome,
                trials=trials,
                requests=requests,
            )
        )
    return found


def load(connection: sqlite3.Connection, experiment: str) -> ExperimentRecord | None:
    """Return an experiment with all its records, ``None`` for an unknown id."""
    row = connection.execute(
        "SELECT number, plan, created_at, ended_at, outcome FROM experiments WHERE id = ?",
        (experiment,),
    ).fetchone()
    if row is None:
        return None
    number, plan, created_at, ended_at, outcome = row
    arms = connection.execute(
        "SELECT arm, failure, given_up, environment FROM arms WHERE experiment = ?", (number,)
    ).fetchall()
    displaced = connection.execute(
        "SELECT content FROM displaced WHERE experiment = ? ORDER BY rowid", (number,)
    )
    return ExperimentRecord(
        plan=msgspec.json.decode(plan, type=ExperimentPlan),
        created_at=created_at,
        ended_at=ended_at,
        outcome=outcome,
        failures={arm: failure for arm, failure, _, _ in arms if failure is not None},
        given_up={arm: reason for arm, _, reason, _ in arms if reason is not None},
        environments={
            arm: msgspec.json.decode(text, type=Environment)
            for arm, _, _, text in arms
            if text is not None
        },
        trials=_trials(connection, number),
        startups=_startups_of(connection, number),
        displaced=tuple(msgspec.json.decode(text, type=Displaced) for (text,) in displaced),
        intents=_intents(connection, number),
    )


def startups(connection: sqlite3.Connection, host: str, digest: str, limit: int) -> list[Startup]:
    """Return the newest starts of a profile on a host first."""
    rows = connection.execute(
        "SELECT server_id, host, profile, digest, engine, launched_at, ready_s, cause, phases "
        "FROM startups WHERE host = ? AND digest = ? ORDER BY number DESC LIMIT ?",
        (host, digest, limit),
    )
    return [_startup(row) for row in rows]


def startups_of(connection: sqlite3.Connection, profile: str, limit: int) -> list[Startup]:
    """Return the newest starts of what has a profile's name, on any host, first."""
    rows = connection.execute(
        "SELECT server_id, host, profile, digest, engine, launched_at, ready_s, cause, phases "
        "FROM startups WHERE profile = ? ORDER BY number DESC LIMIT ?",
        (profile, limit),
    )
    return [_startup(row) for row in rows]


def size_bytes(connection: sqlite3.Connection) -> int:
    """Return the bytes in use, free pages left out."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)


def _trials(connection: sqlite3.Connection, experiment: int) -> tuple[Trial, ...]:
    rows = connection.execute(
        "SELECT number, arm, round, server_id, started_at, startup_s, turn_s, memory_bytes, "
        "counter_difference, notes FROM trials WHERE experiment = ? ORDER BY number",
        (experiment,),
    ).fetchall()
    return tuple(
        Trial(
            arm=row[1],
            round=row[2],
            server_id=row[3],
            started_at=row[4],
            startup_s=row[5],
            turn_s=row[6],
            memory_bytes=row[7],
            counter_difference=_optional(row[8], AcceptCounts),
            notes=tuple(json.loads(row[9])),
            records=_requests(connection, row[0]),
        )
        for row in rows
    )


def _requests(connection: sqlite3.Connection, trial: int) -> tuple[RequestRecord, ...]:
    rows = connection.execute(
        "SELECT number, prompt_id, status, sent_at, took_s, completion_tokens, prompt_tokens, "
        "counts, error, arrivals FROM requests WHERE trial = ? ORDER BY number",
        (trial,),
    )
    return tuple(
        RequestRecord(
            number=row[0],
            prompt_id=row[1],
            status=RequestStatus(row[2]),
            sent_at=row[3],
            took_s=row[4],
            completion_tokens=None if row[5] == TOKENS_UNTOLD else row[5],
            prompt_tokens=row[6],
            counts=_optional(row[7], AcceptCounts),
            error=row[8],
            arrivals=unpack_arrivals(row[9]),
        )
        for row in rows
    )


def _startups_of(connection: sqlite3.Connection, experiment: int) -> tuple[Startup, ...]:
    rows = connection.execute(
        "SELECT server_id, host, profile, digest, engine, launched_at, ready_s, cause, phases "
        "FROM startups WHERE server_id IN "
        "(SELECT server_id FROM launches WHERE experiment = ?) ORDER BY number",
        (experiment,),
    )
    return tuple(_startup(row) for row in rows)


def _startup(row: Row) -> Startup:
    names = ("server_id", "host", "profile", "digest", "engine", "launched_at", "ready_s", "cause")
    values = dict(zip(names, row, strict=False))
    phases = msgspec.json.decode(str(row[-1]), type=tuple[PhaseTime, ...])
    return msgspec.convert({**values, "phases": phases}, type=Startup)


def _intents(connection: sqlite3.Connection, experiment: int) -> tuple[LaunchIntent, ...]:
    rows = connection.execute(
        "SELECT number, arm, host, profile, shell_line, known_before, server_id FROM launches "
        "WHERE experiment = ? AND ended = 0 ORDER BY number",
        (experiment,),
    )
    return tuple(
        LaunchIntent(
            number=row[0],
            arm=row[1],
            host=row[2],
            profile=row[3],
            shell_line=row[4],
            before=frozenset(json.loads(row[5])),
            server_id=row[6],
        )
        for row in rows
    )


def _optional(text: str | None, kind: type[Value]) -> Value | None:
    return None if text is None else msgspec.json.decode(text, type=kind)
