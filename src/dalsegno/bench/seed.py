"""Bulk seeding of a SQLite or PostgreSQL store with finished executions, as many as years of use produce."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.store import DAY, DAY_BITS
from dalsegno.adapters.sqlite.connections.file import connect_writer
from dalsegno.bench.workloads import Progress
from dalsegno.model.ids import derive
from dalsegno.model.search import error_words
from dalsegno.wiring import sqlite_path

CHUNK = 10_000
SPAN = 90 * 86_400.0
"""Seconds over which the executions are spread."""
EPOCH = 1_760_000_000.0
WORKFLOWS = 200
PER_CUSTOMER = 10
VOCABULARY = 100

EXECUTION = (
    "INSERT INTO execution (number, id, workflow, version, definition, state, created_at, priority, parent, relation,"
    " idempotency_key, ended_at, epoch, seq, live, touched_at, tags, error, context, output, input, kind)"
    " VALUES (?, ?, ?, 1, 'hash', ?, ?, 0, ?, ?, ?, ?, 0, 3, 0, ?, ?, ?, NULL, x'31', x'7b7d', ?)"
)
TAG = "INSERT INTO execution_tag (name, value, created_at, execution) VALUES (?, ?, ?, ?)"
WORD = "INSERT OR IGNORE INTO failure_word (word, created_at, execution) VALUES (?, ?, ?)"
EVENT = (
    "INSERT INTO event (execution, seq, kind, node, scope, at, token, arrived, expected, data)"
    " VALUES (?, ?, ?, ?, '', ?, NULL, NULL, NULL, NULL)"
)


def known_in_sqlite(url: str) -> int:
    """Return the number of executions in a store."""
    connection = connect_writer(sqlite_path(url), create=False)
    try:
        (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM execution").fetchone()
    finally:
        connection.close()
    return int(number)


def seed_sqlite(url: str, executions: int, progress: Progress) -> None:
    """Fill a migrated, empty store. Not durable while it runs: after a crash, begin again."""
    connection = connect_writer(sqlite_path(url), create=False)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -262144")
    rows = crowd(executions)
    done = 0
    while chunk := list(islice(rows, CHUNK)):
        connection.execute("BEGIN")
        _write(connection, chunk)
        connection.execute("COMMIT")
        done += len(chunk)
        if done % 100_000 == 0:
            progress(f"{done:,} executions written")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _write(connection: sqlite3.Connection, chunk: list[tuple[Any, ...]]) -> None:
    connection.executemany(EXECUTION, chunk)
    tags, words, events = [], [], []
    for number, name, _, state, created_at, _, _, _, _, ended_at, given_tags, error, _ in chunk:
        tags += [(tag, value, created_at, name) for tag, value in json.loads(given_tags)]
        words += [(word, created_at, name) for word in error_words(error)]
        events += [
            (number, 1, "ExecutionStarted", "", created_at),
            (number, 2, "NodeCompleted", "charge", ended_at),
            (number, 3, f"Execution{state.title()}", "", ended_at),
        ]
    connection.executemany(TAG, tags)
    connection.executemany(WORD, words)
    connection.executemany(EVENT, events)


def crowd(count: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows. Most have completed, of few large and many small workflows; half have tags, some a parent or a
    key.
    """
    choose = random.Random(4)  # the same rows every time
    vocabulary = [f"w{number:03}" for number in range(VOCABULARY)]
    for number in range(1, count + 1):
        created_at = EPOCH + SPAN * number / count
        ended_at = created_at + choose.expovariate(1 / 30)
        state = choose.choices(("COMPLETED", "FAILED", "CANCELLED"), (94, 4, 2))[0]
        parent = name_of(choose.randrange(1, number)) if number > 1 and choose.random() < 0.02 else None
        if number > count // 2 and number % 100 == 0:
            parent = name_of(count // 2)  # one that has many children
        tagged = choose.random() < 0.5
        tags = [
            ["customer", f"c-{choose.randrange(count // PER_CUSTOMER + 1)}"],
            ["env", "prod" if number % 5 else "test"],
        ]
        error = {
            "message": f"charge failed: {' '.join(choose.sample(vocabulary, 6))}",
            "code": choose.choice(("TIMEOUT", "HTTP_ERROR", "NODE_ERROR")),
            "type": "Error",
        }
        yield (
            number,
            name_of(number),
            workflow_of(int(WORKFLOWS * choose.random() ** 3)),
            state,
            created_at,
            parent,
            choose.choice(("retry", "child")) if parent is not None else None,
            f"key-{number}" if number % 10 == 0 else None,
            ended_at,
            ended_at,
            json.dumps(tags if tagged else []),
            json.dumps(error).encode() if state == "FAILED" else None,
            choose.choices(("graph", "script", "python", "task"), (70, 20, 6, 4))[0],
        )


def name_of(number: int) -> str:
    """Return the id of the n-th execution: 12 increasing digits, then noise, like real ids."""
    return f"{number * 7_776:012x}{derive('crowd', str(number))[:20]}"


def workflow_of(number: int) -> str:
    return f"team{number % 10}-workflow-{number:03}"


SCHEMA = "dalsegno"
EXECUTION_COLUMNS = (
    "number",
    "id",
    "workflow",
    "version",
    "definition",
    "state",
    "created_at",
    "priority",
    "parent",
    "relation",
    "idempotency_key",
    "ended_at",
    "epoch",
    "seq",
    "live",
    "touched_at",
    "tags",
    "error",
    "output",
    "input",
    "kind",
)
EVENT_COLUMNS = ("execution", "seq", "kind", "node", "scope", "at")


async def known_in_postgres(url: str) -> int:
    """Return the number of executions in a store."""
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM dalsegno.execution"))
    finally:
        await connection.close()


async def seed_postgres(url: str, executions: int, progress: Progress) -> None:
    """Fill a migrated, empty store with COPY. Not durable while it runs: after a crash, begin again."""
    connection = await asyncpg.connect(url, server_settings={"synchronous_commit": "off"})
    try:
        rows = crowd(executions)
        done = 0
        while chunk := list(islice(rows, CHUNK)):
            async with connection.transaction():
                await _crowd_postgres_write(connection, chunk)
            done += len(chunk)
            if done % 100_000 == 0:
                progress(f"{done:,} executions written")
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def _crowd_postgres_write(connection: Any, chunk: Sequence[tuple[Any, ...]]) -> None:
    records, tags, words, events = [], [], [], []
    for count, *row in chunk:
        name, workflow, state, created_at, parent, relation, key, ended_at, _, labels, error, kind = row
        number = (int(created_at // DAY) << DAY_BITS) + count
        what = (workflow, 1, "hash", state, created_at, 0, parent, relation, key, ended_at)
        records.append((number, name, *what, 0, 3, 0, ended_at, labels, error, b"1", b"{}", kind))
        tags += [(tag, value, created_at, name) for tag, value in json.loads(labels)]
        words += [(word, created_at, name) for word in error_words(error)]
        events += [
            (number, 1, "ExecutionStarted", "", "", created_at),
            (number, 2, "NodeCompleted", "charge", "", ended_at),
            (number, 3, f"Execution{state.title()}", "", "", ended_at),
        ]
    copies = (
        ("execution", EXECUTION_COLUMNS, records),
        ("execution_tag", ("name", "value", "created_at", "execution"), tags),
        ("failure_word", ("word", "created_at", "execution"), words),
        ("event", EVENT_COLUMNS, events),
    )
    for table, columns, values in copies:
        await connection.copy_records_to_table(
            table, schema_name=SCHEMA, columns=columns, records=list(dict.fromkeys(values))
        )
