"""The contract suite on PostgreSQL through PgBouncer in transaction mode. Part of ``make soak``; the short form is in
tests/adapters/postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from dalsegno.testing.contract import WHOLE_STACK, Capabilities, ContractStack, bind
from tests.adapters.postgres.stacks import PostgresStacks
from tests.servers.hasty import EMPTY
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.workspace import Workspace

pytestmark = pytest.mark.soak

DATABASE = "pooled_contract"
SESSIONS = "4"
"""Fewer than connections: every transaction comes to another session than the one before."""


@pytest.fixture(scope="module")
def urls(postgres_server: PostgresServer, server_workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Of one database: straight, and through the pooler."""
    postgres_server.start()
    direct = postgres_server.create_database(DATABASE)
    postgres_server.psql(f"ALTER DATABASE {DATABASE} SET synchronous_commit = off")
    folder = server_workspace.new_folder("pgbouncer")
    with PgBouncer(folder, postgres_server, default_pool_size=SESSIONS) as pooler:
        yield direct, pooler.url_of(DATABASE)
    postgres_server.drop_database(DATABASE)


@pytest.fixture
async def stack(urls: tuple[str, str]) -> AsyncIterator[ContractStack]:
    direct, pooled = urls
    connection = await asyncpg.connect(direct)
    await connection.execute(EMPTY)
    await connection.close()
    stacks = PostgresStacks(pooled)
    yield await stacks.open(listen_at=direct)  # wake-ups need one that is not pooled
    await stacks.close()


globals().update(bind(Capabilities(WHOLE_STACK | {"durable", "shared"})))
