"""Tokens that killed workers before go to a worker one at a time, and one after the other without a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresTransactions
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import event, last, start, token
from tests.adapters.postgres.meanwhile import SOON, until
from tests.adapters.postgres.processes import broker_of
from tests.adapters.postgres.stacks import PostgresStacks

RUNS = [f"run-{number}" for number in range(10)]
End = Callable[[Lease], Awaitable[None]]


@pytest.fixture
async def stack(postgres_url: str) -> AsyncIterator[ContractStack]:
    """Ten suspects are ready, everybody has been told long ago, and nothing else happens."""
    stacks = PostgresStacks(postgres_url)
    stack = await stacks.open()
    await until(lambda: broker_of(stack).listener.sent)
    await stack.ledger.commit([start(run, token("t")) for run in RUNS])
    async with ledger_of(stack).store.transaction() as tx:
        await tx.connection.execute("UPDATE token SET losses = 3")
    yield stack
    await stacks.close()


def ledger_of(stack: ContractStack) -> PostgresLedger:
    assert isinstance(stack.ledger, PostgresLedger)
    return stack.ledger


def ending(lease: Lease) -> Transition:
    return Transition(lease.execution, (last(),), (event(),), lease.token, lease.fence, worker="w1")


async def work(stack: ContractStack, end: End, slots: int) -> tuple[list[str], int]:
    """A worker that asks for more as long as it has room. What it ran, and how many at once."""
    ran: list[str] = []
    running: set[asyncio.Task[None]] = set()
    most = 0

    async def run(lease: Lease) -> None:
        await asyncio.sleep(0.02)
        await end(lease)
        ran.append(lease.execution)

    while len(ran) + len(running) < len(RUNS):
        for lease in await stack.broker.take("w1", ["default"], slots - len(running)):
            task = asyncio.create_task(run(lease))
            running.add(task)
            task.add_done_callback(running.discard)
        most = max(most, len(running))
        if len(running) == slots:
            await asyncio.wait(running, return_when="FIRST_COMPLETED")
    await asyncio.gather(*running)
    return ran, most


@pytest.mark.parametrize("slots", [1, 5])
async def test_ten_of_them_are_done_soon(stack: ContractStack, slots: int) -> None:
    async def commit(lease: Lease) -> None:
        [outcome] = await stack.ledger.commit([ending(lease)])
        assert isinstance(outcome, Applied)

    ran, most = await asyncio.wait_for(work(stack, commit, slots), SOON)

    assert (sorted(ran), most) == (RUNS, 1)


async def test_steps_in_transactions_of_their_own_are_followed_too(stack: ContractStack) -> None:
    ledger = ledger_of(stack)
    transactions = PostgresTransactions(ledger.store, ledger.commits)

    async def commit(lease: Lease) -> None:
        transaction = await transactions.open()
        assert isinstance(await transaction.commit(ending(lease)), Applied)

    ran, most = await asyncio.wait_for(work(stack, commit, 5), SOON)

    assert (sorted(ran), most) == (RUNS, 1)
    await transactions.close()


async def test_one_that_is_handed_back_makes_room_for_the_next(stack: ContractStack) -> None:
    [first] = await stack.broker.take("w1", ["default"], 5)
    taking = asyncio.create_task(stack.broker.take("w1", ["default"], 4))
    await until(lambda: len(ledger_of(stack).waiting_workers))

    await stack.ledger.release("w1", [first])

    [second] = await asyncio.wait_for(taking, SOON)
    assert second.execution != first.execution
