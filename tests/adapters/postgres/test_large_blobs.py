"""Large blobs leave connections to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from dalsegno.adapters.postgres.records import LARGE
from dalsegno.ports.stack import Stack
from dalsegno.testing.contract.builders import start, token
from dalsegno.wiring import open_stack
from tests.waiting import come_about

OWNERS = [f"owner-{number}" for number in range(6)]

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@pytest.fixture
async def stack(postgres_url: str) -> AsyncIterator[Stack]:
    stack = await open_stack(postgres_url)
    yield stack
    await stack.close()


async def test_commits_go_on_while_many_large_blobs_are_on_their_way(stack: Stack, postgres_url: str) -> None:
    for owner in OWNERS:
        await stack.blobs.put(owner, b"first")
    blocker = await asyncpg.connect(postgres_url)
    async with blocker.transaction():
        await blocker.execute("SELECT FROM stored_bytes FOR UPDATE")  # no blob can be charged
        large = [asyncio.create_task(stack.blobs.put(owner, bytes(LARGE + 1))) for owner in OWNERS]
        observer = await asyncpg.connect(postgres_url)
        await come_about(lambda: observer.fetchval(WAITING), "a blob waits for its owner's count")

        async with asyncio.timeout(60):
            await stack.ledger.commit([start("run", token("a"))])

        assert not any(put.done() for put in large)
    names = await asyncio.gather(*large)
    assert len(await stack.blobs.get(OWNERS[0], names[0])) == LARGE + 1
    await blocker.close()
    await observer.close()
