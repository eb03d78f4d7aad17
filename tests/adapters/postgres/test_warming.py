"""Further connections of a process plan the hot statements before they are used, and change nothing by it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.warming import NOTHING, warm
from dalsegno.errors import StoreReadOnly
from dalsegno.testing.contract.build import start, token

PLANNED = "SELECT statement FROM pg_prepared_statements WHERE generic_plans > 0"


async def test_the_second_connection_has_plans_and_the_first_has_none(postgres_url: str) -> None:
    store = await PostgresStore.open(postgres_url)

    async with store.transaction() as first, store.transaction() as second:
        cold = {row[0] for row in await first.connection.fetch(PLANNED)}
        warmed = {row[0] for row in await second.connection.fetch(PLANNED)}
    await store.close()

    hot = {SQL[name] for name in NOTHING}
    assert hot <= warmed
    assert not hot & cold


async def test_warming_touches_neither_ready_nor_due_tokens(ledger: PostgresLedger) -> None:
    await ledger.commit([start("run-1", token("ready"), token("due", due=ledger.now() - 1))])

    async with ledger.store.transaction() as tx:
        await warm(tx.connection)

    found = await ledger.inspect("run-1")
    assert found is not None
    assert {view.id: view.state for view in found.tokens} == {"ready": "ready", "due": "parked"}


async def test_many_at_once_find_warm_connections(postgres_url: str) -> None:
    store = await PostgresStore.open(postgres_url)
    ledger = PostgresLedger(store)

    answers = await asyncio.gather(*(ledger.wake(10) for _ in range(8)))
    await ledger.close()

    assert [answer.ready for answer in answers] == [()] * 8


async def test_server_that_takes_no_writes_is_read_from_warm_connections(postgres_url: str) -> None:
    await (await PostgresStore.open(postgres_url)).close()
    owner = await asyncpg.connect(postgres_url)
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    await owner.close()
    ledger = PostgresLedger(await PostgresStore.open(postgres_url))

    async with ledger.store.look() as first, ledger.store.look() as second:
        assert [await tx.fetch("sweep.any") for tx in (first, second)] == [[], []]
        warmed = {row[0] for row in await second.connection.fetch(PLANNED)}
    with pytest.raises(StoreReadOnly):
        await ledger.commit([start("run-1", token("a"))])
    await ledger.close()

    assert {SQL[name] for name in NOTHING} <= warmed


async def test_busy_connection_keeps_its_plans(postgres_url: str) -> None:
    """asyncpg closes a connection after 50,000 statements, unless told otherwise."""
    store = await PostgresStore.open(postgres_url)

    assert store._pool._max_queries > 10**12
    await store.close()
