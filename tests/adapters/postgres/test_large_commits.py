"""A commit of tens of thousands of tokens is settled and written in parts: the event loop serves others in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dalsegno.adapters.postgres import PostgresLedger
from dalsegno.model.token import NewToken
from dalsegno.model.transition import AlreadyApplied, Transition
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import RUN, start, step, token
from tests.loop_gaps import LoopGaps

COUNT = 20_000
MOST = 0.1
"""Seconds between two turns of the event loop for which the process kept it busy. Settling all at once takes twice as
long and more."""


@pytest.fixture
def stack(ledger: PostgresLedger, clock: FakeClock) -> ContractStack:
    return ContractStack(ledger, clock)


def timer(number: int) -> NewToken:
    return token(f"t{number}", kind="timer", due=2e9 + number, live=False)


def task(number: int) -> NewToken:
    return token(f"t{number}", kind="task")


@pytest.mark.parametrize("made", [timer, task])
async def test_the_event_loop_goes_on_while_many_tokens_are_committed(
    stack: ContractStack, made: Callable[[int], NewToken]
) -> None:
    lease = (await stack.begin(token("a")))["a"]
    large = step(lease, *(made(number) for number in range(COUNT)))

    async with LoopGaps() as gaps:
        await stack.apply(large)

    assert gaps.longest < MOST
    assert await stack.commit(large) == [AlreadyApplied()]
    inspection = await stack.ledger.inspect(RUN)
    assert inspection is not None
    assert len(inspection.tokens) == COUNT


async def test_tokens_of_a_large_commit_keep_their_order(stack: ContractStack) -> None:
    lease = (await stack.begin(token("a")))["a"]
    await stack.apply(step(lease, *(task(number) for number in range(3_000))))

    taken = [lease.token for lease in await stack.claim(2_500)]

    assert taken == [f"t{number}" for number in range(2_500)]


async def test_a_large_start_is_one_commit(stack: ContractStack) -> None:
    large: Transition = start(RUN, *(task(number) for number in range(3_000)))
    await stack.apply(large)
    assert await stack.commit(large) == [AlreadyApplied()]
    assert (await stack.execution()).live == 3_000
