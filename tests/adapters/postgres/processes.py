"""Stacks as processes that know of each other, for tests of wake-ups."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.adapters.postgres import PostgresBroker
from dalsegno.model.token import Lease
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import start, token
from tests.adapters.postgres.meanwhile import act_beside, until
from tests.adapters.postgres.stacks import PostgresStacks


def broker_of(stack: ContractStack) -> PostgresBroker:
    assert isinstance(stack.broker, PostgresBroker)
    return stack.broker


async def two(stacks: PostgresStacks) -> tuple[ContractStack, ContractStack]:
    """Two processes that hear each other and have said hello."""
    first, second = await stacks.open(), await stacks.open()
    for stack in (first, second):
        await until(lambda stack=stack: broker_of(stack).listener.sent)  # type: ignore[misc]
    return first, second


async def waiting(
    stack: ContractStack, *others: ContractStack, worker: str = "w1", limit: int = 10
) -> asyncio.Task[list[Lease]]:
    """A worker that has found nothing and of which the others know it."""
    task = asyncio.create_task(stack.broker.take(worker, ["default"], limit))
    name = broker_of(stack).listener.name
    await until(lambda: all(name in broker_of(other)._idle for other in others))
    return task


async def tarrying(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Task[list[Lease]], asyncio.Event]:
    """A worker that has found nothing and does not say so before it may go on."""
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def tarry() -> None:
        claimed.set()
        await go_on.wait()

    act_beside(monkeypatch, stack.ledger, "claim", after=tarry)
    task = asyncio.create_task(stack.broker.take("w1", ["default"], 10))
    await claimed.wait()
    return task, go_on


async def begin(stack: ContractStack, name: str, *tokens: str) -> None:
    [applied] = await stack.apply(start(name, *(token(each) for each in tokens)))
    await stack.broker.announce(applied.ready)
