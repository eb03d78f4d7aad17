"""The broker topics of the contract suite: RabbitMQ over the ledgers of memory, SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dalsegno.adapters.memory import (
    MemoryArchive,
    MemoryBroker,
    MemoryLedger,
    MemoryPublications,
    MemoryStore,
)
from dalsegno.adapters.rabbitmq import make_broker
from dalsegno.adapters.rabbitmq.amqp import frames
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.topology import EXECUTION
from dalsegno.adapters.sqlite import (
    SqliteArchive,
    SqliteBroker,
    SqliteLedger,
    SqlitePublications,
    SqliteStore,
)
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import Capabilities, ContractStack, bind
from tests.adapters.postgres.stacks import PostgresStacks
from tests.servers import PostgresServer, RabbitServer
from tests.servers.hasty import EMPTY
from tests.servers.sqlite import empty_sqlite

VHOST = "contract"
QUEUES = (EXECUTION, *(f"{EXECUTION}.q.{queue}" for queue in ("gpu", "mail", "elsewhere")))


@pytest.fixture(scope="module")
def vhost(rabbitmq_server: RabbitServer) -> Iterator[str]:
    """One vhost for all tests here; its queues are emptied before each."""
    rabbitmq_server.start()
    yield rabbitmq_server.create_vhost(VHOST)
    rabbitmq_server.delete_vhost(VHOST)


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    postgres_server.start()
    yield postgres_server.create_database("contract_rabbitmq")
    postgres_server.drop_database("contract_rabbitmq")


async def empty_queues(url: str) -> None:
    connection = await Connection.open(parse_address(url))
    channel = await connection.channel()
    for queue in QUEUES:
        await channel.call(frames.QUEUE_DELETE, queue=queue)
    await connection.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def stack(request: pytest.FixtureRequest, vhost: str, tmp_path: Path) -> AsyncIterator[ContractStack]:
    await empty_queues(vhost)
    async with AsyncExitStack() as closing:
        if request.param == "memory":
            clock, store = FakeClock(), MemoryStore()
            ledger = MemoryLedger(clock, store)
            bare = ContractStack(
                ledger,
                clock,
                MemoryArchive(store, clock),
                broker=MemoryBroker(ledger),
                publications=MemoryPublications(store, clock),
            )
        elif request.param == "sqlite":
            empty_sqlite(tmp_path / "store.db")
            file = SqliteStore.open(tmp_path / "store.db", FakeClock())
            closing.callback(file.close)
            in_file = SqliteLedger(file)
            bare = ContractStack(
                in_file,
                file.clock,  # type: ignore[arg-type]
                SqliteArchive(file),
                broker=SqliteBroker(in_file),
                publications=SqlitePublications(file),
            )
            closing.push_async_callback(bare.broker.close)
        else:
            url = request.getfixturevalue("database")
            connection = await asyncpg.connect(url)
            stacks = PostgresStacks(url)
            closing.push_async_callback(stacks.close)
            bare = await stacks.open()
            await connection.execute(EMPTY)
            await connection.close()
        parts: Any = bare
        broker = await make_broker(vhost, parts)
        closing.push_async_callback(broker.close)
        yield replace(bare, broker=broker)


globals().update(bind(Capabilities(frozenset(("commit", "broker")), frozenset(("B1", "B2")))))
