"""What comes due during a wake is leased with it, and begins at its time: neither before nor a wake later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore
from dalsegno.adapters.postgres.claim import timers
from dalsegno.adapters.postgres.claim.waiting_workers import WaitingWorker
from dalsegno.errors import Unavailable
from dalsegno.ports.ledger import Woken
from dalsegno.testing.contract.builders import start, token
from tests.adapters.postgres.meanwhile import SOON, act_beside

AHEAD = 120.0
SOON_DUE = 0.3
"""After the wake has been sent, as a rule; the tests that let it come hold on a slow machine, too."""
WITHIN_REACH = 60.0
"""Where it is never waited for."""


@pytest.fixture
async def ledger(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresLedger]:
    """By the database's own clock, with much time ahead."""
    monkeypatch.setattr(timers, "AHEAD", AHEAD)
    ledger = PostgresLedger(await PostgresStore.open(postgres_url))
    yield ledger
    await ledger.close()


@pytest.fixture
def taker(ledger: PostgresLedger) -> WaitingWorker:
    """A worker that found nothing and waits."""
    taker = WaitingWorker("w1", frozenset(["default"]), 10, asyncio.Event(), 0.0)
    ledger.waiting_workers.add(taker)
    return taker


async def park(ledger: PostgresLedger, **dues: float) -> dict[str, float]:
    """One run each, due so many seconds from now."""
    now = ledger.now()
    found = {run: now + seconds for run, seconds in dues.items()}
    await ledger.commit([start(run, token("t", due=due)) for run, due in found.items()])
    return found


async def states(ledger: PostgresLedger) -> dict[str, str]:
    found = {run: await ledger.inspect(run) for run in ("past", "soon", "late")}
    return {run: view.tokens[0].state for run, view in found.items() if view is not None}


async def test_what_comes_due_soon_is_leased_and_given_when_it_is_due(
    ledger: PostgresLedger, taker: WaitingWorker
) -> None:
    due = await park(ledger, past=-1, soon=SOON_DUE, late=600)

    woken = await ledger.wake()

    assert ledger.now() >= due["soon"]
    assert woken == Woken((), due["late"], handed=2)
    leases = await taker.reserved()
    assert [(lease.execution, lease.ready_at >= due[lease.execution]) for lease in leases] == [
        ("past", True),
        ("soon", True),
    ]
    assert await states(ledger) == {"past": "leased", "soon": "leased", "late": "parked"}


async def test_without_a_worker_that_waits_nothing_is_touched_before_its_time(ledger: PostgresLedger) -> None:
    due = await park(ledger, past=-1, soon=WITHIN_REACH)

    woken = await ledger.wake()

    assert ([ready.execution for ready in woken.ready], woken.next_due) == (["past"], due["soon"])
    assert await states(ledger) == {"past": "ready", "soon": "parked"}


async def test_what_the_worker_has_no_room_for_is_left_until_its_time(
    ledger: PostgresLedger, taker: WaitingWorker
) -> None:
    taker.limit = 1
    due = await park(ledger, past=-1, soon=WITHIN_REACH)

    woken = await ledger.wake()

    assert woken == Woken((), due["soon"], handed=1)
    assert await states(ledger) == {"past": "leased", "soon": "parked"}


async def test_what_the_rules_must_judge_is_left_until_its_time(
    ledger: PostgresLedger, taker: WaitingWorker
) -> None:
    due = ledger.now() + WITHIN_REACH
    await ledger.commit([start("soon", token("t", due=due, key="k"))])

    assert await ledger.wake() == Woken((), due)

    assert await states(ledger) == {"soon": "parked"}
    assert not taker.changed.is_set()


async def test_if_the_worker_goes_meanwhile_others_get_it_at_its_time(
    ledger: PostgresLedger, taker: WaitingWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = await park(ledger, soon=SOON_DUE)

    async def the_worker_goes() -> None:
        assert await states(ledger) == {"soon": "leased"}
        ledger.waiting_workers.remove(taker)
        assert await ledger.claim("w2", ["default"], 1) == []

    act_beside(monkeypatch, timers.TimerWaker, "_until_all_are_due", before=the_worker_goes)

    woken = await ledger.wake()

    assert ledger.now() >= due["soon"]
    assert ([ready.execution for ready in woken.ready], woken.handed) == (["soon"], 0)
    [lease] = await ledger.claim("w2", ["default"], 1)
    assert lease.fence == 2


async def test_a_wake_that_is_broken_off_before_the_time_tells_the_worker(
    ledger: PostgresLedger, taker: WaitingWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds something that it will not be told of: it has to give up its name."""
    await park(ledger, soon=WITHIN_REACH)
    leased = asyncio.Event()

    async def tell() -> None:
        assert await states(ledger) == {"soon": "leased"}
        leased.set()

    act_beside(monkeypatch, timers.TimerWaker, "_until_all_are_due", before=tell)
    waking_up = asyncio.create_task(ledger.wake())
    await asyncio.wait_for(leased.wait(), SOON)

    waking_up.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waking_up
    with pytest.raises(Unavailable, match="interrupted"):
        await asyncio.wait_for(taker.reserved(), SOON)
