"""Logs on PostgreSQL: entries that are appended at once keep the order of the calls, over processes too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.postgres import PostgresRecords, PostgresStore
from dalsegno.errors import DalSegnoError
from dalsegno.testing.clock import FakeClock


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(postgres_url, FakeClock())
    yield store
    await store.close()


async def test_entries_appended_at_once_keep_the_order_of_the_calls(store: PostgresStore) -> None:
    records = PostgresRecords(store)

    numbers = await asyncio.gather(*(records.append("audit", b"%d" % number) for number in range(200)))

    assert numbers == list(range(1, 201))
    entries = await records.entries("audit", limit=200)
    assert [entry.data for entry in reversed(entries)] == [b"%d" % number for number in range(200)]


async def test_two_processes_never_give_a_number_twice(store: PostgresStore, postgres_url: str) -> None:
    other = await PostgresStore.open(postgres_url, FakeClock())
    both = PostgresRecords(store), PostgresRecords(other)

    numbers = await asyncio.gather(*(both[number % 2].append("audit", b"x") for number in range(100)))

    assert sorted(numbers) == list(range(1, 101))
    await other.close()


async def test_error_reaches_everybody_whose_entry_was_not_written(store: PostgresStore) -> None:
    records = PostgresRecords(store)
    await store.close()

    answers = await asyncio.gather(*(records.append("audit", b"x") for _ in range(3)), return_exceptions=True)

    assert [isinstance(answer, DalSegnoError) for answer in answers] == [True] * 3
