"""The store's schema as numbered steps. Append only: a step that was released never changes."""

import sqlite3

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE experiments (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            created_at REAL NOT NULL,
            ended_at REAL,
            outcome TEXT NOT NULL DEFAULT '',
            plan TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE arms (
            experiment INTEGER NOT NULL REFERENCES experiments ON DELETE CASCADE,
            arm INTEGER NOT NULL,
            failure TEXT,
            environment TEXT,
            PRIMARY KEY (experiment, arm)
        ) STRICT""",
        """CREATE TABLE trials (
            number INTEGER PRIMARY KEY,
            experiment INTEGER NOT NULL REFERENCES experiments ON DELETE CASCADE,
            arm INTEGER NOT NULL,
            round INTEGER NOT NULL,
            server_id TEXT NOT NULL,
            started_at REAL,
            startup_s REAL,
            turn_s REAL,
            memory_bytes INTEGER,
            counter_difference TEXT,
            notes TEXT NOT NULL,
            UNIQUE (experiment, arm, round)
        ) STRICT""",
        """CREATE TABLE requests (
            trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE,
            number INTEGER NOT NULL,
            prompt_id TEXT NOT NULL,
            status TEXT NOT NULL,
            sent_at REAL NOT NULL,
            took_s REAL NOT NULL,
            completion_tokens INTEGER NOT NULL,
            prompt_tokens INTEGER,
            counts TEXT,
            error TEXT,
            arrivals BLOB NOT NULL,
            PRIMARY KEY (trial, number)
        ) STRICT""",
        """CREATE TABLE launches (
            number INTEGER PRIMARY KEY,
            experiment INTEGER NOT NULL REFERENCES experiments ON DELETE CASCADE,
            arm INTEGER NOT NULL,
            host TEXT NOT NULL,
            profile TEXT NOT NULL,
            shell_line TEXT NOT NULL,
            known_before TEXT NOT NULL,
            server_id TEXT,
            ended INTEGER NOT NULL DEFAULT 0
        ) STRICT""",
        """CREATE TABLE displaced (
            experiment INTEGER NOT NULL REFERENCES experiments ON DELETE CASCADE,
            server_id TEXT NOT NULL,
            content TEXT NOT NULL,
            PRIMARY KEY (experiment, server_id)
        ) STRICT""",
        """CREATE TABLE startups (
            number INTEGER PRIMARY KEY,
            server_id TEXT NOT NULL UNIQUE,
            host TEXT NOT NULL,
            profile TEXT NOT NULL,
            digest TEXT NOT NULL,
            engine TEXT NOT NULL,
            launched_at REAL NOT NULL,
            ready_s REAL,
            cause TEXT,
            phases TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX startups_by_profile ON startups (host, digest, number)",
    ),
    (
        "ALTER TABLE arms ADD COLUMN given_up TEXT",
        """UPDATE arms SET given_up = substr(failure, length('given up: ') + 1), failure = NULL
            WHERE failure LIKE 'given up: %'""",
    ),
)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date; two consoles may try at once.

    Raises ``LookupError`` where the file was written by a newer eaglemon.
    """
    if _version(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        if version > len(MIGRATIONS):
            raise LookupError(version)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
