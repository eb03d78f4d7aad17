"""Due timers: nobody waits for those that come due while others are being woken, and plain ones take one statement."""

from __future__ import annotations

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.ports.ledger import Woken
from dalsegno.testing.contract.builders import pause, start, token
from tests.adapters.postgres.conftest import OpenLedger
from tests.adapters.postgres.meanwhile import act_beside

VERSION = "SELECT version FROM dalsegno.flight"


async def test_what_comes_due_during_a_wake_is_left_to_the_next(
    ledger: PostgresLedger, open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, number = await open_ledger(), 0

    async def park_one() -> None:
        nonlocal number
        number += 1
        await other.commit([start(f"run-{number}", token("t", due=other.now() - 1))])

    await park_one()
    act_beside(monkeypatch, PostgresStore, "fetch", about="leases.wake_plain", after=park_one)

    assert [ready.execution for ready in (await ledger.wake()).ready] == ["run-1"]
    assert [ready.execution for ready in (await ledger.wake()).ready] == ["run-2"]


async def test_a_wake_tells_when_the_next_comes_due(ledger: PostgresLedger) -> None:
    now = ledger.now()
    assert await ledger.wake() == Woken((), None)
    dues = {"past": now - 2, "later": now + 60, "soon": now + 30, "just": now - 1}
    await ledger.commit([start(name, token("t", due=due)) for name, due in dues.items()])

    first = await ledger.wake(1)
    second = await ledger.wake(10)

    assert ([ready.execution for ready in first.ready], first.next_due) == (["past"], now - 1)
    assert ([ready.execution for ready in second.ready], second.next_due) == (["just"], now + 30)
    assert await ledger.wake() == Woken((), now + 30)


async def test_one_that_somebody_else_holds_is_next(ledger: PostgresLedger, postgres_url: str) -> None:
    due = ledger.now() - 1
    await ledger.commit([start("held", token("t", due=due)), start("free", token("t", due=due + 0.5))])
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction():
        await connection.execute("SELECT 1 FROM dalsegno.flight WHERE id = 'held' FOR UPDATE")
        woken = await ledger.wake()
    await connection.close()

    assert ([ready.execution for ready in woken.ready], woken.next_due) == (["free"], due)
    assert [ready.execution for ready in (await ledger.wake()).ready] == ["held"]


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
