"""Starts in a transaction that the caller keeps open: nobody else waits for it, and it counts from its commit on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import pytest

from dalsegno import App
from dalsegno.adapters.neighbours import Message
from dalsegno.adapters.postgres import PostgresLedger, PostgresTransactions
from dalsegno.adapters.postgres.commit import starts
from dalsegno.adapters.postgres.messaging.listener import CHANNEL
from dalsegno.errors import Unavailable
from dalsegno.model.effect import BeginExecution, CreateExecution
from dalsegno.model.limits import Allowance
from dalsegno.model.token import SYSTEM_QUEUE, Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Deferred, Outcome, ReadyToken, Transition
from dalsegno.ports.transactions import CallerConnection
from dalsegno.testing.contract.builders import (
    command,
    deadline,
    event,
    finish,
    new_execution,
    start,
    step,
    token,
)
from tests.adapters.postgres.conftest import OpenLedger
from tests.adapters.postgres.meanwhile import SOON, until
from tests.applied import applied

AT_ONCE = 4.5
"""Seconds; less than anybody waits for a lock."""
ONE, TWO = Allowance(concurrency=1), Allowance(concurrency=2)


class Caller:
    """A connection of its own, with a transaction that is open."""

    def __init__(self, connection: Any, transactions: PostgresTransactions) -> None:
        self.connection = connection
        self._transactions = transactions
        self._transaction = connection.transaction()

    async def begin(self) -> Caller:
        await self._transaction.start()
        return self

    async def start(self, transition: Transition) -> Outcome:
        return await self._transactions.start(CallerConnection(self.connection), transition)

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


@pytest.fixture
async def callers(ledger: PostgresLedger, postgres_url: str) -> AsyncIterator[list[Caller]]:
    transactions = PostgresTransactions(ledger.store, ledger.commits)
    connections = [await asyncpg.connect(postgres_url) for _ in range(2)]
    yield [await Caller(connection, transactions).begin() for connection in connections]
    for connection in connections:
        connection.terminate()
    await transactions.close()


@pytest.fixture
def caller(callers: list[Caller]) -> Caller:
    return callers[0]


def limited(name: str, key: str = "mail", allows: Allowance = ONE, **more: Any) -> Transition:
    return start(f"run-{name}", token(name, key=key, allows=allows, **more))


def pending(name: str, key: str = "mail") -> Transition:
    """Of a workflow that is limited as a whole."""
    first = token(f"{name}-start", kind="start", queue=SYSTEM_QUEUE, live=False, key=key, allows=ONE)
    created = CreateExecution(new_execution(f"run-{name}"), pending=True)
    return command(f"run-{name}", created, first, events=(event("ExecutionSubmitted", ""),))


async def claim(ledger: PostgresLedger, worker: str = "w1", *queues: str) -> list[Lease]:
    return await ledger.claim(worker, queues or ("default",), 99)


def names(leases: list[Lease]) -> list[str]:
    return [lease.token for lease in leases]


async def rows(ledger: PostgresLedger, query: str) -> list[Any]:
    async with ledger.store.transaction() as tx:
        return [tuple(row) for row in await tx.connection.fetch(query)]


# -- limits ---------------------------------------------------------------------------------------------------


async def test_others_free_claim_and_start_while_a_limited_start_is_open(
    ledger: PostgresLedger, open_ledger: OpenLedger, caller: Caller
) -> None:
    other = await open_ledger()
    await other.commit([limited("a"), limited("b")])
    [first] = await claim(other)
    await caller.start(limited("mine"))

    async with asyncio.timeout(AT_ONCE):
        outcomes = await other.commit([step(first), limited("c"), start("run-plain", token("plain"))])
        assert [type(outcome) for outcome in outcomes] == [Applied] * 3
        assert sorted(names(await claim(other))) == ["b", "plain"]
        named = [ReadyToken("c", "run-c", "default", 0)]
        assert await other.lease("w2", named) == [], "there is but one slot"

    await caller.commit()


async def test_it_stands_in_line_from_the_callers_commit_on(
    ledger: PostgresLedger, open_ledger: OpenLedger, caller: Caller
) -> None:
    other = await open_ledger()
    outcome = await caller.start(limited("early"))
    await caller.start(limited("urgent", priority=5))
    await caller.start(limited("late"))
    assert outcome == applied(next_due=ledger.now())
    await other.commit([limited("meanwhile")])
    assert (await other.wake()).ready == ()
    await caller.commit()

    woken = await other.wake()

    assert [ready.token for ready in woken.ready] == ["early", "urgent", "late"]
    for name in ("urgent", "meanwhile", "early", "late"):
        [lease] = await claim(other)
        assert lease.token == name
        await other.commit([step(lease)])


async def test_limit_of_a_workflow_holds_for_such_a_start(ledger: PostgresLedger, caller: Caller) -> None:
    await ledger.commit([pending("before")])
    [held] = await claim(ledger, "w1", SYSTEM_QUEUE)
    await caller.start(pending("mine"))
    await caller.commit()

    assert [ready.token for ready in (await ledger.wake()).ready] == ["mine-start"]
    await ledger.commit([step(held, BeginExecution(), token("first"))])
    assert await claim(ledger, "w2", SYSTEM_QUEUE) == [], "the other one holds the slot until it ends"
    [first] = await claim(ledger)
    await ledger.commit([step(first, finish())])
    assert names(await claim(ledger, "w2", SYSTEM_QUEUE)) == ["mine-start"]


async def test_undone_start_leaves_nobody_in_line(ledger: PostgresLedger, caller: Caller) -> None:
    await caller.start(limited("mine"))
    await caller.rollback()

    assert (await ledger.wake()).ready == ()
    assert await rows(ledger, "SELECT key FROM line") == []
    assert await rows(ledger, "SELECT id FROM token") == []
    await ledger.commit([limited("mine")])
    assert names(await claim(ledger)) == ["mine"]


async def test_callers_that_take_keys_in_different_orders_do_not_meet(
    ledger: PostgresLedger, callers: list[Caller]
) -> None:
    one, two = callers
    async with asyncio.timeout(AT_ONCE):
        await one.start(limited("a1", "k1"))
        await two.start(limited("b2", "k2"))
        await one.start(limited("a2", "k2"))
        await two.start(limited("b1", "k1"))
        await one.commit()
        await two.commit()

    assert len((await ledger.wake()).ready) == 4
    assert sorted(names(await claim(ledger))) == ["a1", "b2"]


# -- the same execution ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
async def test_same_start_waits_alone_for_the_caller(
    open_ledger: OpenLedger, caller: Caller, commits: bool
) -> None:
    other = await open_ledger()
    await caller.start(start("run-a", token("a")))
    batch = [start("run-a", token("a")), *(start(f"run-{n}", token(f"t{n}")) for n in range(5))]

    async with asyncio.timeout(AT_ONCE):
        outcomes = await other.commit(batch)
        assert [type(outcome) for outcome in outcomes] == [Deferred, *[Applied] * 5]
        assert await other.commit(batch[:1]) == [Deferred()]
    await (caller.commit() if commits else caller.rollback())

    [outcome] = await other.commit(batch[:1])
    assert type(outcome) is (AlreadyApplied if commits else Applied)
    assert names(await claim(other, "w1"))[-1:] == (["a"] if not commits else ["t4"])
    assert await rows(other, "SELECT count(*) FROM token WHERE id = 'a'") == [(1,)]


async def test_same_start_does_not_wait_for_ever(
    open_ledger: OpenLedger, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await open_ledger()
    monkeypatch.setattr(starts, "LONGEST_WAIT", 0.1)
    await caller.start(start("run-a", token("a")))

    async def send_again_and_again() -> None:
        async with asyncio.timeout(AT_ONCE):
            while True:
                await other.commit([start("run-a", token("a"))])

    with pytest.raises(Unavailable, match="can be sent again"):
        await send_again_and_again()


async def test_second_caller_with_the_same_start_finds_that_of_the_first(
    ledger: PostgresLedger, callers: list[Caller]
) -> None:
    one, two = callers
    await one.start(start("run-a", token("a")))
    second = asyncio.create_task(two.start(start("run-a", token("a"))))
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
    async with asyncio.timeout(20):
        while not await rows(ledger, waiting):  # each look takes its time
            pass
    await one.commit()

    assert await second == AlreadyApplied()
    await two.commit()


async def test_callers_own_settings_stay_as_they_are(caller: Caller) -> None:
    await caller.connection.execute("SET LOCAL lock_timeout = '7s'")
    assert isinstance(await caller.start(start("mine", token("t"))), Applied)
    assert await caller.connection.fetchval("SHOW lock_timeout") == "7s"


async def test_start_that_has_been_there_holds_nothing(ledger: PostgresLedger, caller: Caller) -> None:
    await ledger.commit([start("run-a", token("a"))])
    [lease] = await claim(ledger)
    assert await caller.start(start("run-a", token("a"))) == AlreadyApplied()

    async with asyncio.timeout(AT_ONCE):
        [outcome] = await ledger.commit([step(lease, token("b"))])

    assert isinstance(outcome, Applied)
    await caller.commit()


# -- locks of keys --------------------------------------------------------------------------------------------


async def test_claim_passes_a_line_whose_key_somebody_holds_for_long(
    ledger: PostgresLedger, open_ledger: OpenLedger
) -> None:
    await ledger.commit([limited("a", "stuck"), limited("b", "free"), start("run-plain", token("plain"))])
    stranger = await open_ledger()
    async with stranger.store.transaction() as tx:
        await tx.fetch("limits.lock", ["stuck"])

        assert sorted(names(await claim(ledger))) == ["b", "plain"]
        await ledger.commit([limited("c", "other")])
        began = time.monotonic()
        assert names(await claim(ledger, "w2")) == ["c"]
        assert time.monotonic() - began < 0.9, "it was waited for once"
        assert await ledger.lease("w2", [ReadyToken("a", "run-a", "default", 0)]) == []

    assert names(await claim(ledger, "w2")) == ["a"]


# -- time -----------------------------------------------------------------------------------------------------


async def test_callers_commit_tells_when_something_comes_due(
    ledger: PostgresLedger, caller: Caller, postgres_url: str
) -> None:
    heard: list[Message] = []
    ear = await asyncpg.connect(postgres_url)
    await ear.add_listener(CHANNEL, lambda *said: heard.append(msgspec.json.decode(said[-1], type=Message)))
    now = ledger.now()
    await caller.start(start("run-a", token("a"), deadline("a-deadline", now + 2.5)))
    await caller.start(limited("b"))
    await caller.start(limited("c"))
    await caller.start(start("run-d", token("d")))
    await caller.start(start("run-d", token("d")))
    await caller.commit()

    await until(lambda: len(heard) == 3)
    assert [message.news for message in heard] == [True] * 3
    dues = [message.due for message in heard]
    assert dues[1:] == [now // 1, None], "the same is said once"
    assert dues[0] is not None
    assert now + 1.5 <= dues[0] <= now + 2.5
    await ear.close()


async def test_delay_counts_from_the_start_and_not_from_the_next_look(postgres_url: str) -> None:
    app = App(postgres_url)

    @app.workflow
    async def later(n: int) -> int:
        return n

    async with app.running():
        await (await app.astart(later, 1)).aresult(30)
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            delayed = await app.with_options(connection=connection, delay=0.5).astart(later, 7)
        committed_at = time.monotonic()
        assert await delayed.aresult(30) == 7
        assert time.monotonic() - committed_at < SOON
        await connection.close()


async def test_limited_workflow_begins_with_the_callers_commit(postgres_url: str) -> None:
    app = App(postgres_url)

    @app.workflow(concurrency={"key": "mail", "limit": 1})
    async def mailing(n: int) -> int:
        return n

    async with app.running():
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            within = app.with_options(connection=connection)
            handles = [await within.astart(mailing, n) for n in range(5)]
            assert await (await app.astart(mailing, 9)).aresult(SOON) == 9
        committed_at = time.monotonic()
        assert [await handle.aresult(30) for handle in handles] == list(range(5))
        assert time.monotonic() - committed_at < SOON
        await connection.close()
