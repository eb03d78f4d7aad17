"""A process has two batches under way on PostgreSQL: one that waits for somebody's lock does not hold up the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from dalsegno.engine.batches import SMALL_BATCH
from dalsegno.engine.committer import Committer
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.stack import Stack
from dalsegno.testing.contract.builders import event, start, token
from dalsegno.wiring import open_stack
from tests.adapters.postgres.meanwhile import until

WAITS_FOR_ME = """
SELECT pid, waitstart
FROM pg_locks
WHERE waitstart IS NOT NULL AND pg_backend_pid() = ANY (pg_blocking_pids(pid))
"""


@pytest.fixture
async def stack(postgres_url: str) -> AsyncIterator[Stack]:
    stack = await open_stack(postgres_url)
    yield stack
    await stack.close()


@pytest.fixture
async def stranger(postgres_url: str, stack: Stack) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url, server_settings={"search_path": "dalsegno"})
    yield connection
    await connection.close()


async def test_batch_that_waits_for_a_lock_does_not_hold_up_others(
    stack: Stack, stranger: asyncpg.Connection
) -> None:
    committer = Committer(stack.ledger, stack.broker, lambda *_: None, stack.commits_at_once)
    await committer.commit(start("held", token("a")))
    free = [f"free-{number}" for number in range(SMALL_BATCH)]
    await asyncio.gather(*(committer.commit(start(run, token(f"{run}-t"))) for run in free))
    transaction = stranger.transaction()
    await transaction.start()
    await stranger.fetch("SELECT 1 FROM flight WHERE id = 'held' FOR UPDATE")

    held = committer.commit(Transition("held", (), (event(),)))
    await until(lambda: stranger.fetch(WAITS_FOR_ME))
    before = await stranger.fetch(WAITS_FOR_ME)
    outcomes = await asyncio.gather(*(committer.commit(Transition(run, (), (event(),))) for run in free))
    after = await stranger.fetch(WAITS_FOR_ME)

    assert [type(outcome) for outcome in outcomes] == [Applied] * SMALL_BATCH
    assert after == before, "the other batch waits as it did before"
    assert not held.done()

    await transaction.rollback()
    assert isinstance(await held, Applied)
    await committer.drain()
