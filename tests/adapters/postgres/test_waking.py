"""Due timers: nobody waits for those that come due while others are being woken, and plain ones take one statement."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.testing.contract.build import pause, start, token
from tests.adapters.postgres.conftest import OpenLedger

VERSION = "SELECT version FROM dalsegno.flight"


async def test_what_comes_due_during_a_wake_is_left_to_the_next(
    ledger: PostgresLedger, open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, fetch, number = await open_ledger(), PostgresStore.fetch, 0

    async def park_one() -> None:
        nonlocal number
        number += 1
        await other.commit([start(f"run-{number}", token("t", due=other.now() - 1))])

    async def fetch_while_more_is_parked(store: PostgresStore, name: str, *arguments: Any) -> Any:
        rows = await fetch(store, name, *arguments)
        if name == "leases.wake_plain":
            await park_one()
        return rows

    await park_one()
    monkeypatch.setattr(PostgresStore, "fetch", fetch_while_more_is_parked)

    first = await ledger.wake()

    assert [ready.execution for ready in first.ready] == ["run-1"]
    assert first.next_due is not None
    assert first.next_due <= ledger.now()
    assert [ready.execution for ready in (await ledger.wake()).ready] == ["run-2"]


async def test_plain_timers_are_woken_beside_those_that_need_the_rules(ledger: PostgresLedger) -> None:
    due = ledger.now() - 1
    await ledger.commit([start("paused", token("t", due=due)), start("plain", token("t", due=due))])
    await ledger.commit([start("line", token("t", due=due, key="k")), pause("paused")])

    woken = await ledger.wake()

    assert {ready.execution for ready in woken.ready} == {"plain", "line"}
    assert woken.next_due is None
    found = {name: await ledger.inspect(name) for name in ("paused", "plain", "line")}
    states = {name: view.tokens[0].state for name, view in found.items() if view is not None}
    assert states == {"paused": "held", "plain": "ready", "line": "ready"}


async def test_a_wake_counts_as_a_change_of_the_execution(ledger: PostgresLedger, postgres_url: str) -> None:
    """A commit that read the token before must notice."""
    await ledger.commit([start("run-1", token("t", due=ledger.now() - 1))])
    connection = await asyncpg.connect(postgres_url)
    before = await connection.fetchval(VERSION)
    await ledger.wake()
    after = await connection.fetchval(VERSION)
    await connection.close()
    assert after == before + 1
