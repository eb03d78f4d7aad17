"""Commits in one statement beside those that read first: whatever is committed, both have to come to the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresLedger
from dalsegno.adapters.postgres.commit.cached import CachedExecutions
from tests.adapters.postgres.conftest import OpenLedger

ALL = "execution, flight, token, event, output, outbox, left_context, execution_tag, worker, machine, inbox, mailbox"


async def rows(ledger: PostgresLedger, query: str) -> list[asyncpg.Record]:
    async with ledger.store.transaction() as tx:
        found: list[asyncpg.Record] = await tx.connection.fetch(query)
    return found


async def come_to_the_same(
    play: Callable[[PostgresLedger], Awaitable[list[object]]],
    open_ledger: OpenLedger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``play`` tells all that can be seen of it."""
    ledger = await open_ledger()
    short = await play(ledger)
    assert ledger.commits.known.hits > 0
    await rows(ledger, f"TRUNCATE {ALL}")
    monkeypatch.setattr(CachedExecutions, "take", lambda *_: None)

    assert await play(await open_ledger()) == short
