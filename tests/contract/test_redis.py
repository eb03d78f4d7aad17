"""The broker's topics of the contract suite on Redis, over every ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dalsegno.adapters.memory import MemoryLedger, MemoryStore
from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.adapters.redis import RedisBroker, RedisChannel, RedisConnection
from dalsegno.adapters.sqlite import SqliteLedger, SqliteStore
from dalsegno.ports.ledger import Ledger
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import Capabilities, ContractStack, bind
from tests.servers.sqlite import empty_sqlite


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Ledger, FakeClock]]:
    clock = FakeClock()
    made: Ledger
    match request.param:
        case "memory":
            made = MemoryLedger(clock, MemoryStore())
        case "sqlite":
            empty_sqlite(tmp_path / "store.db")
            made = SqliteLedger(SqliteStore.open(tmp_path / "store.db", clock))
        case _:
            url = request.getfixturevalue("empty_postgres")()
            made = PostgresLedger(await PostgresStore.open(url, clock))
    yield made, clock
    await made.close()


@pytest.fixture
async def stack(ledger: tuple[Ledger, FakeClock], redis_url: str) -> AsyncIterator[ContractStack]:
    connection = RedisConnection(redis_url)
    await connection.open()
    broker = RedisBroker(ledger[0], connection, RedisChannel(connection))
    yield ContractStack(ledger[0], ledger[1], broker=broker)
    await broker.close()
    await connection.close()


globals().update(bind(Capabilities(frozenset(("commit", "broker")), frozenset(("B1", "B2")))))
