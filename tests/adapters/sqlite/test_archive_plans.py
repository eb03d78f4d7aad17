"""Lists over 20,000 executions: every filter walks indexes, and whichever it walks, the page is the same.

``dalsegno bench listing`` measures the same filters over a million.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.adapters import listing_plan
from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.adapters.sqlite.archive import listing
from dalsegno.adapters.sqlite.connections import connect_reader
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.bench.seed import filters, known_in_sqlite, seed_sqlite
from dalsegno.ports.archive import ExecutionFilter, Place
from dalsegno.testing import FakeClock

EXECUTIONS = 20_000
FILTERS = filters(EXECUTIONS)
TABLES = ("execution", "execution_tag", "failure_word", "flight", "token", "leading", "tagged", "said")
SHORT_SORTS = {SQL["listing.ended"], SQL["listing.of_id"]}
"""Taken only where they have few rows to sort."""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path: Path = tmp_path_factory.mktemp("crowd") / "crowd.db"
    SqliteStore.open(path, FakeClock()).close()
    url = f"sqlite:///{path}"
    seed_sqlite(url, EXECUTIONS, lambda _line: None)
    assert known_in_sqlite(url) == EXECUTIONS
    connection = connect_reader(path)
    yield connection
    connection.close()


class Noting:
    """A connection that remembers what it was asked."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.asked: list[tuple[str, Any]] = []

    def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.asked.append((statement, parameters))
        return self.connection.execute(statement, parameters)


@pytest.mark.parametrize("name", FILTERS)
def test_no_filter_looks_at_everything(crowd: sqlite3.Connection, name: str) -> None:
    noting = Noting(crowd)
    listing.page(noting, FILTERS[name], None, 50)  # type: ignore[arg-type]

    for statement, parameters in noting.asked:
        plan = [row[3] for row in crowd.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
        if statement != SQL["listing.workflows"]:  # one step from each name to the next
            scanned = [line for line in plan if line.startswith("SCAN") and line.split()[1] in TABLES]
            assert not scanned, (statement, plan)
        assert statement in SHORT_SORTS or not any("TEMP B-TREE" in line for line in plan), (statement, plan)


@pytest.mark.parametrize("name", FILTERS)
def test_the_way_taken_does_not_change_the_page(
    crowd: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pages = _pages(crowd, FILTERS[name])
    monkeypatch.setattr(listing, "_shortest", lambda *_: listing_plan.NEWEST)

    assert pages == _pages(crowd, FILTERS[name])


def _pages(connection: sqlite3.Connection, where: ExecutionFilter) -> list[str]:
    """The first three pages, one after the other."""
    found: list[tuple[Any, ...]] = []
    for _ in range(3):
        place = Place(found[-1][6], found[-1][0]) if found else None
        found += listing.page(connection, where, place, 20)
    return [str(row[0]) for row in found]


def test_filters_find_something(crowd: sqlite3.Connection) -> None:
    """A test of empty pages would tell nothing."""
    empty = {name for name, where in FILTERS.items() if not listing.page(crowd, where, None, 1)}
    meant = {name for name in FILTERS if "none" in name or "absent" in name or "before all" in name}
    assert len(empty - meant) < 8, empty - meant
