"""The contract suite on PostgreSQL, as far as its ledger goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import Capabilities, ContractStack, bind
from tests.servers.postgres import PostgresServer

DATABASE = "contract"
TABLES = "execution flight token scope barrier slot gate left_context output event outbox"


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all tests here, emptied before each: creating one takes longer than a test."""
    postgres_server.start()
    yield postgres_server.create_database(DATABASE)
    postgres_server.drop_database(DATABASE)


@pytest.fixture
async def stack(postgres_server: PostgresServer, database: str) -> AsyncIterator[ContractStack]:
    clock = FakeClock()
    store = await PostgresStore.open(database, clock)
    postgres_server.psql("; ".join(f"DELETE FROM dalsegno.{table}" for table in TABLES.split()), DATABASE)
    ledger = PostgresLedger(store)
    yield ContractStack(ledger, clock, read_events=ledger.events)  # type: ignore[arg-type]  # no whole Ledger yet
    await ledger.close()


GUARANTEES = frozenset(["L1", "L2", "L3", "L5", "L6", "L7", "L8", "L9", "C1"])
FEATURES = frozenset(("commit", "gates", "cancelling", "pausing", "time"))
globals().update(bind(Capabilities(FEATURES, GUARANTEES)))
