"""The contract suite on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from dalsegno.adapters.postgres import PostgresStore
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import WHOLE_STACK, Capabilities, ContractStack, bind
from tests.adapters.postgres.stacks import PostgresStacks
from tests.servers.hasty import EMPTY
from tests.servers.postgres import PostgresServer, Session

pytestmark = pytest.mark.asyncio(loop_scope="module")

DATABASE = "contract"


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all tests here, emptied before each: creating one takes longer than a test. No server is killed
    here, so nothing waits for the disk; tests/adapters/postgres is about that."""
    postgres_server.start()
    url = postgres_server.create_database(DATABASE)
    postgres_server.psql(f"ALTER DATABASE {DATABASE} SET synchronous_commit = off")
    yield url
    postgres_server.drop_database(DATABASE)


@pytest.fixture(scope="module")
def emptying(database: str) -> Iterator[Session]:
    """A session that stays: to begin one takes longer than to empty the tables."""
    with Session(database) as session:
        yield session


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(database: str) -> AsyncIterator[PostgresStore]:
    """Its connections stay, and so do the plans of their statements. How a store is opened and closed is what
    tests/adapters/postgres is about."""
    store = await PostgresStore.open(database, FakeClock(), connections=8)
    yield store
    await store.close()


@pytest_asyncio.fixture(loop_scope="module")
async def stack(database: str, emptying: Session, opened: PostgresStore) -> AsyncIterator[ContractStack]:
    emptying.run(EMPTY)
    stacks = PostgresStacks(database, shared=opened)
    yield await stacks.open()
    await stacks.close()


globals().update(bind(Capabilities(WHOLE_STACK | {"durable", "shared"})))
