"""What processes tell each other beside new work: timers, deliveries, endings, repairs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.neighbours import LOOK_ALONE, LOOK_EVERY, SENT_AHEAD
from dalsegno.adapters.postgres import (
    Listener,
    PostgresBroker,
    PostgresLedger,
    PostgresNeighbours,
    PostgresStore,
)
from dalsegno.testing.clock import FakeClock
from tests.adapters.postgres.meanwhile import until

Pair = tuple[PostgresNeighbours, PostgresNeighbours]


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[Pair]:
    """Two processes that hear each other; the second is the scheduler."""
    store = await PostgresStore.open(postgres_url, FakeClock())
    ledger = PostgresLedger(store)
    made = []
    for _ in range(2):
        listener = Listener(postgres_url)
        made.append(
            PostgresNeighbours(ledger, listener, PostgresBroker(ledger, listener, ledger.waiting_workers))
        )
        listener.start()
    await until(lambda: all(each.listener.sent for each in made))  # they have said hello
    yield made[0], made[1]
    for each in made:
        await each.broker.close()
    await ledger.close()


class Ears:
    def __init__(self, neighbours: PostgresNeighbours) -> None:
        self.dues: list[float] = []
        self.owed = self.tended = 0
        self.ended: list[str] = []
        neighbours.on_upkeep(self.dues.append, self._owe, self._tend)
        neighbours.on_ending(self.ended.append)

    def _owe(self) -> None:
        self.owed += 1

    def _tend(self) -> None:
        self.tended += 1


async def test_timer_is_told_only_if_it_comes_before_all_that_were_told(pair: Pair) -> None:
    worker, scheduler = pair
    ears, now = Ears(scheduler), worker.ledger.now()

    for after in (9.0, 12.0, 9.0, 4.0, 8.0, SENT_AHEAD + 1.0):
        worker.announce_due(now + after)
    worker.announce_outbox()

    await until(lambda: ears.owed)
    assert ears.dues == [now + 9.0, now + 4.0]


async def test_timer_is_told_again_once_what_was_told_has_come(pair: Pair) -> None:
    worker, scheduler = pair
    ears, now = Ears(scheduler), worker.ledger.now()
    worker.announce_due(now + 1.0)
    await until(lambda: ears.dues)
    assert isinstance(worker.ledger, PostgresLedger)
    worker.ledger.store._clock.advance(2.0)  # type: ignore[union-attr]

    worker.announce_due(now + 6.0)

    await until(lambda: len(ears.dues) == 2)
    assert ears.dues == [now + 1.0, now + 6.0]


async def test_scheduler_holds_its_own_timers_and_tells_nobody(pair: Pair) -> None:
    worker, scheduler = pair
    ears = Ears(scheduler)
    Ears(worker)
    sent = worker.listener.sent

    worker.announce_due(worker.ledger.now() + 1.0)
    worker.announce_outbox()
    worker.announce_round()

    await until(lambda: ears.tended and worker.listener.sent > sent)
    assert (ears.dues, ears.owed, worker.listener.sent) == ([], 0, sent + 1)


async def test_entries_of_one_batch_are_told_once(pair: Pair) -> None:
    worker, scheduler = pair
    ears = Ears(scheduler)

    for _ in range(50):
        worker.announce_outbox()
    worker.announce_round()

    await until(lambda: ears.tended and ears.owed)
    assert ears.owed == 1


async def test_endings_are_told_to_those_who_wait(pair: Pair) -> None:
    worker, waiter = pair
    ears = Ears(waiter)
    worker.announce_ended("before anybody waited")
    waiter.watch_endings()
    await until(lambda: worker._watchers)

    names = [f"run-{number}" for number in range(1000)]
    for name in names:
        worker.announce_ended(name)

    await until(lambda: len(ears.ended) >= len(names))
    assert sorted(ears.ended) == sorted(names)


async def test_looks_are_seldom_only_while_messages_arrive(pair: Pair) -> None:
    worker, _ = pair
    assert worker.look_every() == LOOK_EVERY

    await worker.listener.close()

    assert worker.look_every() == LOOK_ALONE
