"""The contract suite on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from dalsegno.testing.contract import WHOLE_STACK, Capabilities, ContractStack, bind
from tests.adapters.postgres.stacks import PostgresStacks
from tests.servers.hasty import EMPTY
from tests.servers.postgres import PostgresServer

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


@pytest.fixture
async def stack(database: str) -> AsyncIterator[ContractStack]:
    connection = await asyncpg.connect(database)
    await connection.execute(EMPTY)
    await connection.close()
    stacks = PostgresStacks(database)
    yield await stacks.open()
    await stacks.close()


globals().update(bind(Capabilities(WHOLE_STACK | {"durable", "shared"})))
