"""Claims look past what cannot run: no statement about limits reads a whole table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.adapters.sqlite import SqliteLedger, SqliteStore
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.model.limits import Allowance
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.builders import start, token

READING = sorted(name for name in SQL if name.startswith("limits.") and name != "limits.any")
"""``any`` reads the first row there is."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "store.db", FakeClock())
    yield opened
    opened.close()


@pytest.mark.parametrize("name", [*READING, "leases.ready"])
def test_statement_reads_by_an_index(store: SqliteStore, name: str) -> None:
    text = SQL[name]
    named = {"key": "", "after": "", "limit": 1, "execution": 1}
    parameters: Any = named if ":" in text else [1] * text.count("?")
    with sqlite3.connect(store.path) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]
    connection.close()
    assert not [
        line for line in plan if line.startswith("SCAN") and "subquery" not in line and "CONSTANT" not in line
    ]
    assert not [line for line in plan if "FOR ORDER BY" in line]


async def test_a_claim_past_many_blocked_tokens_reads_few(store: SqliteStore) -> None:
    """Steps of SQLite's machine, not seconds: the same for a hundred and for two thousand tokens that cannot start."""
    ledger, allows = SqliteLedger(store), Allowance(concurrency=1)

    async def effort(blocked: int, first: int) -> int:
        await ledger.commit(
            [
                start(f"run-{n}", token(f"t{n}", key=f"k{n % 20}", allows=allows))
                for n in range(first, blocked)
            ]
        )
        await ledger.claim("w1", ("default",), 100)
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        await store.write(lambda rows: rows.connection.set_progress_handler(count, 1))
        assert await ledger.claim("w1", ("default",), 100) == []
        await store.write(lambda rows: rows.connection.set_progress_handler(None, 1))
        return steps

    few = await effort(100, 0)
    many = await effort(2000, 100)
    assert many <= few * 1.5
