"""Files that an earlier version wrote are opened, brought up to date, and go on where they stopped."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dalsegno.adapters.sqlite import SqliteArchive, SqliteLedger, SqliteStore, migration
from dalsegno.errors import SchemaMismatch
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import last, step, token
from dalsegno.testing.contract.script_builders import machine_of, suspend

FIRST = """
INSERT INTO execution (number, id, workflow, version, definition, state, created_at, priority, tags, input)
VALUES (1, 'old', 'orders', 1, 'hash', 'RUNNING', 5.0, 0, '[]', x'7b7d');
INSERT INTO flight (number, id, state, definition, epoch, seq, live, priority, touched_at)
VALUES (1, 'old', 'RUNNING', 'hash', 0, 1, 2, 0, 5.0);
INSERT INTO token (number, execution, id, state, scope, kind, node, queue, priority, live, ready_at, data)
VALUES (1, 1, 'a', 'ready', '', 'node', 'a', 'default', 0, 1, 5.0, x'7b7d');
INSERT INTO token (number, execution, id, state, scope, kind, node, queue, priority, live, ready_at, due, data)
VALUES (2, 1, 'b', 'parked', '', 'node', 'b', 'default', 0, 1, 5.0, 6.0, x'7b7d');
INSERT INTO event (execution, seq, kind, node, scope, at) VALUES (1, 1, 'ExecutionStarted', '', '', 5.0);
INSERT INTO outbox (id, execution, topic, data) VALUES ('m', 'old', 'topic', x'01');
INSERT INTO execution (number, id, workflow, version, definition, state, created_at, priority, tags, input, ended_at,
                       epoch, seq, live, touched_at)
VALUES (2, 'older', 'orders', 1, 'hash', 'COMPLETED', 1.0, 0, '[]', x'7b7d', 2.0, 0, 4, 0, 2.0);
"""
"""Rows as the first schema holds them: an execution under way, and one that was swept."""


@pytest.fixture(params=range(1, len(migration.migrations())))
def old_file(path: Path, request: pytest.FixtureRequest) -> Path:
    """A file of each schema there ever was."""
    version: int = request.param
    connection = sqlite3.connect(path)
    for text in (*migration.migrations()[:version], FIRST):
        connection.executescript(text)
    connection.execute(f"PRAGMA application_id = {migration.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    return path


async def test_old_file_goes_on_where_it_stopped(old_file: Path, clock: FakeClock) -> None:
    store = SqliteStore.open(old_file, clock)
    stack = ContractStack(SqliteLedger(store), clock, SqliteArchive(store))

    lease = (await stack.take())["a"]
    assert (lease.execution, lease.execution_kind) == ("old", "graph")
    [woken] = (await stack.ledger.wake()).ready
    assert woken.token == "b"
    await stack.apply(step(lease, token("c")), step((await stack.take())["b"]))
    [applied] = await stack.apply(step((await stack.take())["c"], last()))

    assert applied.ended == "COMPLETED"
    assert [entry.id for entry in await stack.ledger.outbox()] == ["m"]
    assert await stack.ledger.machine("old") is None
    store.close()


async def test_old_file_shows_what_it_knew(old_file: Path, clock: FakeClock) -> None:
    store = SqliteStore.open(old_file, clock)
    stack = ContractStack(SqliteLedger(store), clock, SqliteArchive(store))

    found = await stack.archive.executions(ExecutionFilter())

    assert [(view.id, view.state, view.kind, view.seq) for view in found] == [
        ("old", "RUNNING", "graph", 1),
        ("older", "COMPLETED", "graph", 4),
    ]
    assert await stack.kinds("old") == ["ExecutionStarted"]
    store.close()


async def test_old_file_runs_scripts(old_file: Path, clock: FakeClock) -> None:
    store = SqliteStore.open(old_file, clock)
    stack = ContractStack(SqliteLedger(store), clock, SqliteArchive(store))

    await suspend(stack)

    assert (await machine_of(stack)).version == 1
    store.close()


def test_old_file_opened_for_reading_says_what_to_do(old_file: Path, clock: FakeClock) -> None:
    with pytest.raises(SchemaMismatch, match="open it once for writing"):
        SqliteStore.open(old_file, clock, read_only=True)


def test_upgraded_schema_is_the_schema_of_a_new_file(
    old_file: Path, tmp_path: Path, clock: FakeClock
) -> None:
    new_file = tmp_path / "new.db"
    for path in (old_file, new_file):
        SqliteStore.open(path, clock).close()

    def schema(path: Path) -> list[tuple[str, str]]:
        connection = sqlite3.connect(path)
        found = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
        connection.close()
        return found

    assert schema(old_file) == schema(new_file)
