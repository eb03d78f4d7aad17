"""Every statement fits the migrated schema, and those that run often walk an index."""

from __future__ import annotations

import re
import sqlite3

import pytest

from dalsegno.adapters.sqlite.commit.changes import SIZES, BulkStatement
from dalsegno.adapters.sqlite.migration import migrations, split_statements
from dalsegno.adapters.sqlite.statements import SQL
from tests.rows import rows

SCANS_ON_PURPOSE = {
    "leases.workers",  # as many rows as there are workers
    "leases.known_workers",  # the same
    "leases.gone",  # the same
    "history.outbox",  # in the order of its key
    "history.oldest_entry",  # the first of them
}
SORTS_ON_PURPOSE = {
    "token.ready_of",
    "definition.by_hash",
    "join.visit_of",  # the visits of one node
    "machine.unanswered",  # the requests of one execution that wait for an answer: few
    "listing.awaiting_signal",  # ids of what waits, which is what is looked for
    "listing.ended",  # taken only where few ended in that time
    "listing.of_id",  # ids with the same beginning, which is long
}


@pytest.fixture(scope="module")
def schema() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for migration in migrations():
        for statement in split_statements(migration):
            connection.execute(statement)
    connection.execute(SQL["raw.table"])
    return connection


def parameters(statement: str) -> dict[str, None] | list[None]:
    names = re.findall(r":(\w+)", statement)
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return dict.fromkeys(names) if names else [None] * (max(numbers) if numbers else statement.count("?"))


@rows("name", sorted(SQL.keys() - {"raw.table"}))
def test_statement_fits_the_schema(schema: sqlite3.Connection, name: str) -> None:
    schema.execute(f"EXPLAIN {SQL[name]}", parameters(SQL[name]))


@rows("name", sorted(SQL.keys() - SCANS_ON_PURPOSE - {"raw.table", "raw.insert"}))
def test_statement_scans_no_table(schema: sqlite3.Connection, name: str) -> None:
    plan = [row[3] for row in schema.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", parameters(SQL[name]))]

    tables = {table for (table,) in schema.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    scans = [line for line in plan if line.startswith("SCAN") and " USING " not in line]
    assert not tables.intersection(line.split()[1] for line in scans), plan
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan or name in SORTS_ON_PURPOSE, plan


def test_open_questions_are_found_by_their_own_index(schema: sqlite3.Connection) -> None:
    """Whatever a store knows of its contents, neither the executions nor the other tokens are walked."""
    statement = SQL["listing.awaiting_signal"]
    plan = [row[3] for row in schema.execute(f"EXPLAIN QUERY PLAN {statement}", parameters(statement))]
    [walked] = [
        line for line in plan if line.startswith("SCAN") and line.split()[1] in ("token", "execution")
    ]
    assert walked.endswith("INDEX token_awaiting_signal")
    assert "SEARCH leading USING INTEGER PRIMARY KEY (rowid=?)" in plan


@pytest.mark.parametrize("size", SIZES)
def test_bulk_statement_of_every_size_inserts_its_rows(schema: sqlite3.Connection, size: int) -> None:
    schema.execute("DELETE FROM slot")
    flat = [value for slot in range(size) for value in (1, "b", slot, 1, bytearray(b"x"))]

    BulkStatement(SQL["join.save_slot"]).run(schema, flat)

    assert schema.execute("SELECT count(*) FROM slot").fetchone() == (size,)


def test_bulk_statement_needs_a_group() -> None:
    with pytest.raises(ValueError, match="no VALUES group"):
        BulkStatement("SELECT 1")
