"""Lists over 20,000 executions on PostgreSQL: every statement walks indexes, and whichever it walks, the page is the
same. ``dalsegno bench listing --store postgresql://…`` measures the same filters over a million."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dalsegno.adapters import listing_plan
from dalsegno.adapters.postgres import PostgresStore
from dalsegno.adapters.postgres.archive import listing
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.store import snapshot
from dalsegno.bench.seed import filters, known_in_postgres, seed_postgres
from dalsegno.ports.archive import ExecutionFilter, Place
from dalsegno.testing import FakeClock
from tests.servers.postgres import PostgresServer

EXECUTIONS = 20_000
FILTERS = filters(EXECUTIONS)
DATABASE = "crowd"
LISTING = sorted(name for name in SQL if name.startswith("listing."))
TOPICS = ("archive", "blobs", "definition", "partitions", "records", "removal")
OTHERS = sorted(name for name in SQL if name.split(".")[0] in TOPICS)
MERGED = re.compile("listing[.](newest|of_|in_|tag|failed_with|ended|awaiting_signal)")
"""Walks over lanes: what they find, a page of each, is sorted once more."""
SHORT_SORTS = {"listing.ended", "listing.of_id", "listing.awaiting_signal"}
"""Taken only where they have few rows to sort."""


@pytest.fixture(scope="module")
def crowd_url(postgres_server: PostgresServer) -> Iterator[str]:
    postgres_server.start()
    url = postgres_server.create_database(DATABASE)

    async def fill() -> None:
        await (await PostgresStore.open(url)).close()
        await seed_postgres(url, EXECUTIONS, lambda _line: None)
        assert await known_in_postgres(url) == EXECUTIONS

    asyncio.run(fill())
    yield url
    postgres_server.drop_database(DATABASE)


@pytest.fixture
async def crowd(crowd_url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(crowd_url, FakeClock())
    yield store
    await store.close()


async def plan_of(connection: Any, name: str) -> list[str]:
    """The one plan that is made for all parameters."""
    parameters = (await connection.prepare(SQL[name])).get_parameters()
    await connection.execute(f"PREPARE planned AS {SQL[name]}")
    given = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
    rows = await connection.fetch(f"EXPLAIN EXECUTE planned{given}")
    return [line for (line,) in rows]


@pytest.mark.parametrize("name", LISTING)
async def test_listings_walk_indexes_in_order(crowd: PostgresStore, name: str) -> None:
    async with snapshot(crowd) as rows:
        plan = await plan_of(rows.connection, name)
        await rows.connection.execute("DEALLOCATE planned")

    assert not [line for line in plan if "Seq Scan" in line or "Bitmap" in line], plan
    sorts = sum("Sort Key" in line for line in plan)
    assert sorts <= bool(MERGED.match(name)) + (name in SHORT_SORTS or name == "listing.rarest_word"), plan


@pytest.mark.parametrize("name", OTHERS)
async def test_no_other_statement_of_the_archive_looks_at_everything(crowd: PostgresStore, name: str) -> None:
    async with crowd.transaction() as rows:
        plan = await plan_of(rows.connection, name)
        await rows.connection.execute("DEALLOCATE planned")

    assert not [line for line in plan if "Seq Scan" in line], plan


@pytest.mark.parametrize("name", FILTERS)
async def test_the_way_taken_does_not_change_the_page(
    crowd: PostgresStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def newest(*_: object) -> listing_plan.IndexPlan:
        return listing_plan.NEWEST

    pages = await pages_of(crowd, FILTERS[name])
    monkeypatch.setattr(listing, "_shortest", newest)

    assert pages == await pages_of(crowd, FILTERS[name])


async def pages_of(store: PostgresStore, where: ExecutionFilter) -> list[str]:
    """The first three pages, one after the other."""
    found: list[Any] = []
    for _ in range(3):
        place = Place(found[-1]["created_at"], found[-1]["id"]) if found else None
        async with snapshot(store) as rows:
            found += await listing.page(rows, where, place, 20)
    return [str(row["id"]) for row in found]


async def test_filters_find_something(crowd: PostgresStore) -> None:
    """A test of empty pages would tell nothing."""
    empty = set()
    for name, where in FILTERS.items():
        async with snapshot(crowd) as rows:
            if not await listing.page(rows, where, None, 1):
                empty.add(name)
    meant = {name for name in FILTERS if "none" in name or "absent" in name or "before all" in name}
    assert len(empty - meant) < 8, empty - meant
