"""Transactions that are interrupted: nothing of them is applied, and no connection is left standing in one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dalsegno.adapters.postgres import PostgresStore

MOST_TURNS = 200
"""Of the event loop, which are far more than a transaction takes."""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(postgres_url)
    yield store
    await store.close()


@pytest.fixture
def complaints() -> list[str]:
    """Of whatever runs in the event loop."""
    found: list[str] = []

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        found.append(str(context["message"]))

    asyncio.get_event_loop().set_exception_handler(note)
    return found


async def record(store: PostgresStore, name: str) -> None:
    async with store.transaction() as rows:
        await rows.connection.execute("INSERT INTO log (name, newest) VALUES ($1, 0)", name)


async def interrupt(task: asyncio.Task[None], turns: int, times: int) -> bool:
    """After so many turns of the loop, so often; whether it was soon enough."""
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    return task.cancelled()


async def standing(store: PostgresStore) -> int:
    """Connections that stand in a transaction."""
    async with store.transaction() as rows:
        found: int = await rows.connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE state LIKE 'idle in transaction%' AND pid <> pg_backend_pid() AND datname = current_database()"
        )
    return found


async def test_wherever_it_is_interrupted_nothing_is_left(
    store: PostgresStore, complaints: list[str]
) -> None:
    interrupted = 0
    while await interrupt(asyncio.create_task(record(store, f"log-{interrupted}")), interrupted, 1):
        interrupted += 1
        assert interrupted < MOST_TURNS, "no transaction was ever complete"

    assert interrupted > 3
    assert complaints == []
    assert await standing(store) == 0


async def test_who_is_interrupted_even_while_it_is_taken_back(
    store: PostgresStore, complaints: list[str]
) -> None:
    for turns in range(30):
        await interrupt(asyncio.create_task(record(store, f"log-{turns}")), turns, 2)

    assert not [words for words in complaints if "transaction" in words]
    assert await standing(store) == 0
