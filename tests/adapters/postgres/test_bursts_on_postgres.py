"""A burst of more than the own worker takes: the rest wakes others, also while the worker has not come to its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.postgres import PostgresStore
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import start, token
from tests.adapters.postgres.meanwhile import SOON, act_beside
from tests.adapters.postgres.processes import broker_of, two, waiting
from tests.adapters.postgres.stacks import PostgresStacks

Both = tuple[ContractStack, asyncio.Task[list[Lease]], asyncio.Task[list[Lease]]]
LIMIT = 2


@pytest.fixture
async def both(postgres_url: str) -> AsyncIterator[Both]:
    """A process whose worker waits for up to two tokens, and another one that is known to wait."""
    stacks = PostgresStacks(postgres_url)
    here, there = await two(stacks)
    elsewhere = await waiting(there, here)
    own = await waiting(here, there, worker="w2", limit=LIMIT)
    yield here, own, elsewhere
    for taking in (own, elsewhere):
        taking.cancel()
    await stacks.close()


async def made(stack: ContractStack, *runs: str) -> list[ReadyToken]:
    """Ready, and not announced yet."""
    applied = [(await stack.apply(start(run, token("t"))))[0] for run in runs]
    return [ready for each in applied for ready in each.ready]


async def runs_of(*takings: asyncio.Task[list[Lease]]) -> list[list[str]]:
    async with asyncio.timeout(SOON):
        return [sorted(lease.execution for lease in await taking) for taking in takings]


async def test_what_due_timers_leave_after_the_own_worker_got_its_part_wakes_others(both: Both) -> None:
    here, own, elsewhere = both
    due = here.ledger.now() - 1
    await here.ledger.commit([start(run, token("t", due=due)) for run in ("a", "b", "c")])

    woken = await here.ledger.wake()
    assert (woken.handed, len(woken.ready), own.done()) == (LIMIT, 1, False)
    await here.broker.announce(woken.ready)  # before the worker has come to its turn

    assert await runs_of(own, elsewhere) == [["a", "b"], ["c"]]


async def test_two_announcements_at_once_are_not_both_counted_on_the_own_worker(both: Both) -> None:
    here, own, elsewhere = both
    first, second, third = await made(here, "a", "b", "c")

    await here.broker.announce([first, second])
    await here.broker.announce([third])

    # Whoever is woken for the third may be so quick as to take all: then nothing is left for the own worker.
    taken: list[str] = []
    async with asyncio.timeout(SOON):
        for taking in asyncio.as_completed((own, elsewhere)):
            taken += [lease.execution for lease in await taking]
            if len(taken) == 3:
                break
    assert sorted(taken) == ["a", "b", "c"]


async def test_a_worker_that_is_promised_timers_is_not_counted_on_for_others(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, own, elsewhere = both
    due = here.ledger.now() - 1
    await here.ledger.commit([start(run, token("t", due=due)) for run in ("a", "b")])
    ready = await made(here, "c")

    async def announce() -> None:
        await here.broker.announce(ready)

    act_beside(monkeypatch, PostgresStore, "fetch", about="leases.wake_plain", before=announce)
    await here.ledger.wake()

    assert await runs_of(own, elsewhere) == [["a", "b"], ["c"]]


async def test_what_the_own_worker_takes_wakes_nobody(both: Both) -> None:
    here, own, _ = both
    sent = broker_of(here).listener.sent

    await here.broker.announce(await made(here, "a", "b"))

    assert await runs_of(own) == [["a", "b"]]
    assert broker_of(here).listener.sent == sent
