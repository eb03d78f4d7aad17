"""Ledgers on an empty database, all closed in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.testing.clock import FakeClock

OpenLedger = Callable[[], Awaitable[PostgresLedger]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def open_ledger(postgres_url: str, clock: FakeClock) -> AsyncIterator[OpenLedger]:
    """Each is what another process would have."""
    opened: list[PostgresLedger] = []

    async def open_one() -> PostgresLedger:
        ledger = PostgresLedger(await PostgresStore.open(postgres_url, clock))
        opened.append(ledger)
        return ledger

    yield open_one
    for ledger in opened:
        await ledger.close()


@pytest.fixture
async def ledger(open_ledger: OpenLedger) -> PostgresLedger:
    return await open_ledger()
