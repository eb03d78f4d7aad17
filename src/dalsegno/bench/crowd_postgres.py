"""The same crowd of finished executions in a PostgreSQL database, written by COPY."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.numbering import DAY, DAY_BITS
from dalsegno.bench.crowd import CHUNK, crowd
from dalsegno.bench.workloads import Progress
from dalsegno.model.search import error_words

SCHEMA = "dalsegno"
EXECUTION = (
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
EVENT = ("execution", "seq", "kind", "node", "scope", "at")


async def known(url: str) -> int:
    """How many executions a store holds."""
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM dalsegno.execution"))
    finally:
        await connection.close()


async def seed(url: str, executions: int, progress: Progress) -> None:
    """Into a store that is migrated and empty. Not durable while it runs: a crash means to begin again."""
    connection = await asyncpg.connect(url, server_settings={"synchronous_commit": "off"})
    try:
        rows = crowd(executions)
        done = 0
        while chunk := list(islice(rows, CHUNK)):
            async with connection.transaction():
                await _write(connection, chunk)
            done += len(chunk)
            if done % 100_000 == 0:
                progress(f"{done:,} executions written")
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def _write(connection: Any, chunk: Sequence[tuple[Any, ...]]) -> None:
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
        ("execution", EXECUTION, records),
        ("execution_tag", ("name", "value", "created_at", "execution"), tags),
        ("failure_word", ("word", "created_at", "execution"), words),
        ("event", EVENT, events),
    )
    for table, columns, values in copies:
        await connection.copy_records_to_table(
            table, schema_name=SCHEMA, columns=columns, records=list(dict.fromkeys(values))
        )
