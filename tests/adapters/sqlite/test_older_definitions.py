"""A store of the first schema: its definitions get aliases, its executions stay apart from schedules."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from dalsegno.adapters.sqlite import SqliteArchive, SqliteStore, migration
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.clock import FakeClock


def write_first_schema(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in migration.split_statements(migration.migrations()[0]):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {migration.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    for version in (1, 2):
        row = ("orders", version, f"h{version}", "graph", 0.0, b"{}")
        connection.execute("INSERT INTO definition VALUES (?, ?, ?, ?, ?, ?)", row)
    connection.execute("INSERT INTO definition_current VALUES ('orders', 2)")
    connection.execute(
        "INSERT INTO execution (id, workflow, version, definition, state, created_at, priority, tags, input)"
        " VALUES ('old', 'orders', 1, 'h1', 'COMPLETED', 1.0, 0, '[]', '{}')"
    )
    connection.close()


async def test_definitions_of_an_older_store_can_be_named_by_aliases(path: Path, clock: FakeClock) -> None:
    write_first_schema(path)
    store = SqliteStore.open(path, clock)
    archive = SqliteArchive(store)

    await archive.set_alias("orders", "stable", 1)

    stable, latest = (
        await archive.definition("orders", "stable"),
        await archive.definition("orders", "latest"),
    )
    assert stable is not None
    assert latest is not None
    assert (stable.version, latest.version) == (1, 2)
    assert [each.version for each in await archive.versions("orders")] == [2, 1]
    store.close()


async def test_executions_of_an_older_store_are_no_schedules(path: Path, clock: FakeClock) -> None:
    write_first_schema(path)
    store = SqliteStore.open(path, clock)
    archive = SqliteArchive(store)

    assert [view.kind for view in await archive.executions(ExecutionFilter())] == ["graph"]
    assert await archive.executions(ExecutionFilter(kinds=("schedule",))) == []
    store.close()
