"""Due timers go straight to a worker that waits in the same process: no claim, nothing lost, nothing given twice."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.adapters.postgres.claim.waiting_workers import WaitingWorker, WaitingWorkers
from dalsegno.errors import Unavailable
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.ledger import Woken
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import event, last, start, token
from tests.adapters.postgres.meanwhile import SOON, act_beside, until
from tests.adapters.postgres.stacks import PostgresStacks
from tests.applied import applied

WAKE = "leases.wake_plain"


@pytest.fixture
async def stack(postgres_url: str) -> AsyncIterator[ContractStack]:
    stacks = PostgresStacks(postgres_url)
    stack = await stacks.open()
    await until(
        lambda: stacks.brokers[0].listener.sent
    )  # its hello: until then it may look again at any time
    yield stack
    await stacks.close()


def ledger_of(stack: ContractStack) -> PostgresLedger:
    assert isinstance(stack.ledger, PostgresLedger)
    return stack.ledger


async def waiting(stack: ContractStack, limit: int = 10, *queues: str) -> asyncio.Task[list[Lease]]:
    """A worker that has found nothing."""
    task = asyncio.create_task(stack.broker.take("w1", queues or ["default"], limit))
    await until(lambda: len(ledger_of(stack).waiting_workers))
    return task


async def park(stack: ContractStack, *runs: str, **fields: Any) -> None:
    due = stack.ledger.now() - 1
    await stack.ledger.commit([start(run, token("t", due=due, **fields)) for run in runs])


async def states(stack: ContractStack, *runs: str) -> list[str]:
    found = [await stack.ledger.inspect(run) for run in runs]
    return [view.tokens[0].state for view in found if view is not None]


async def test_a_worker_that_waits_gets_what_wakes_without_a_claim(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = await waiting(stack)
    await park(stack, "run-1", "run-2")
    monkeypatch.setattr(stack.ledger, "claim", None)  # whoever claims fails

    woken = await stack.ledger.wake()
    leases = await asyncio.wait_for(taking, SOON)

    assert woken == Woken((), None, handed=2)
    given = [(lease.execution, lease.token, lease.reason, lease.fence) for lease in leases]
    assert given == [("run-1", "t", "timer", 1), ("run-2", "t", "timer", 1)]
    again = await waiting(stack)  # and it waits on, still without a claim
    again.cancel()


async def test_what_was_handed_over_commits_the_short_way(stack: ContractStack) -> None:
    taking = await waiting(stack)
    await park(stack, "run-1")
    await stack.ledger.wake()
    [lease] = await asyncio.wait_for(taking, SOON)

    [outcome] = await stack.ledger.commit(
        [Transition("run-1", (last(),), (event(),), "t", lease.fence, worker="w1")]
    )

    assert outcome == applied(ended="COMPLETED")
    assert ledger_of(stack).commits.known.hits == 1


async def test_it_gets_no_more_than_it_takes_and_only_of_its_queues(stack: ContractStack) -> None:
    taking = await waiting(stack, 2, "mine")
    await park(stack, "other")
    await park(stack, "a", "b", "c", queue="mine")

    woken = await stack.ledger.wake()
    leases = await asyncio.wait_for(taking, SOON)

    assert [lease.execution for lease in leases] == ["a", "b"]
    assert [ready.execution for ready in woken.ready] == ["other", "c"]
    assert woken.handed == 2
    assert await states(stack, "a", "b", "c", "other") == ["leased", "leased", "ready", "ready"]


async def test_what_killed_workers_before_is_left_to_a_claim(stack: ContractStack) -> None:
    taking = await waiting(stack)
    await park(stack, "run-1")
    async with ledger_of(stack).store.transaction() as tx:
        await tx.connection.execute("UPDATE token SET losses = 3")

    woken = await stack.ledger.wake()

    assert ([ready.execution for ready in woken.ready], woken.handed) == (["run-1"], 0)
    await stack.broker.announce(woken.ready)
    [lease] = await asyncio.wait_for(taking, SOON)
    assert lease.losses == 3


async def test_one_that_waits_no_more_when_the_wake_comes_back_gets_nothing(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = await waiting(stack)
    await park(stack, "run-1")

    async def give_up() -> None:
        taking.cancel()
        await asyncio.wait([taking])

    act_beside(monkeypatch, PostgresStore, "fetch", about=WAKE, after=give_up)

    woken = await stack.ledger.wake()

    assert ([ready.execution for ready in woken.ready], woken.handed) == (["run-1"], 0)
    assert await states(stack, "run-1") == ["ready"]
    [lease] = await stack.ledger.claim("w2", ["default"], 1)
    assert (lease.execution, lease.fence) == ("run-1", 2)


async def test_news_during_a_wake_wait_for_its_outcome(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = await waiting(stack)
    await park(stack, "run-1")
    heard = asyncio.Event()

    async def hear() -> None:
        heard.set()

    async def announce() -> None:
        [applied] = await stack.apply(start("run-2", token("t")))
        await stack.broker.announce(applied.ready)
        await asyncio.wait_for(heard.wait(), SOON)  # from then on it waits only for what was promised

    act_beside(monkeypatch, WaitingWorker, "reserved", before=hear)
    act_beside(monkeypatch, PostgresStore, "fetch", about=WAKE, before=announce)

    await stack.ledger.wake()

    [handed] = await asyncio.wait_for(taking, SOON)
    [claimed] = await asyncio.wait_for(stack.broker.take("w1", ["default"], 9), SOON)
    assert (handed.execution, claimed.execution) == ("run-1", "run-2")


async def test_a_wake_whose_answer_is_lost_is_told_to_the_worker(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something may have been leased to it: it has to give up its name."""
    taking = await waiting(stack)

    async def lose_the_answer() -> None:
        raise Unavailable("the connection was lost")

    act_beside(monkeypatch, PostgresStore, "fetch", about=WAKE, after=lose_the_answer)

    with pytest.raises(Unavailable):
        await stack.ledger.wake()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(taking, SOON)


async def test_wakes_with_nothing_due_leave_the_worker_waiting(stack: ContractStack) -> None:
    taking = await waiting(stack)

    for _ in range(3):
        assert await stack.ledger.wake() == Woken((), None)

    assert not taking.done()
    taking.cancel()


async def test_a_worker_that_stops_when_a_wake_breaks_leaves_no_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    takers = WaitingWorkers()
    taker = WaitingWorker("w1", frozenset(["default"]), 1, asyncio.Event(), 0.0)
    takers.add(taker)
    assert takers.reserve() is taker
    assert takers.reserve() is None  # something is reserved for it already

    takers.fail_reservation(taker, Unavailable("gone"))
    takers.remove(taker)
    taker.reservation = None
    gc.collect()

    assert not takers.keep(taker, [])
    assert caplog.records == []
