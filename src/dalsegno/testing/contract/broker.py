"""B1 and B2: announcements reach workers, and are only hints."""

from __future__ import annotations

import asyncio

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.testing.contract.builders import RUN, cancel, start, step, token
from dalsegno.testing.contract.stack import ContractStack, Topic

PATIENCE = 30.0
"""Seconds of real time after which a broker that should deliver has failed."""


async def take(
    stack: ContractStack, worker: str = "w1", queue: str = "default", limit: int = 10
) -> list[Lease]:
    return await asyncio.wait_for(stack.broker.take(worker, [queue], limit), PATIENCE)


async def announce_start(stack: ContractStack, *names: str, queue: str = "default") -> tuple[ReadyToken, ...]:
    [applied] = await stack.apply(start(RUN, *(token(name, queue=queue) for name in names)))
    await stack.broker.announce(applied.ready)
    return applied.ready


async def is_waiting(task: asyncio.Task[list[Lease]]) -> bool:
    """Return True if the claim still waits after all ready callbacks have run."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not task.done()


async def stop(task: asyncio.Task[list[Lease]]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class BrokerDelivery(Topic):
    guarantees = frozenset(("B1",))
    needs = frozenset(("commit", "broker"))

    async def test_b1_at_least_once_announced_token_is_delivered_as_a_lease(
        self, stack: ContractStack
    ) -> None:
        await announce_start(stack, "a")

        [lease] = await take(stack)

        assert (lease.token, lease.execution, lease.fence) == ("a", RUN, 1)
        await stack.apply(step(lease))

    async def test_b1_at_least_once_a_waiting_worker_is_woken(self, stack: ContractStack) -> None:
        task = asyncio.create_task(take(stack))
        assert await is_waiting(task)

        await announce_start(stack, "a")

        assert [lease.token for lease in await task] == ["a"]

    async def test_b1_at_least_once_worker_that_stops_as_news_come_in_does_not_wait_on(
        self, stack: ContractStack
    ) -> None:
        task = asyncio.create_task(stack.broker.take("w1", ["default"], 10))
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not task.done()

        await announce_start(stack, "a", queue="elsewhere")
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)

        assert task.cancelled()

    async def test_b1_at_least_once_every_token_reaches_somebody(self, stack: ContractStack) -> None:
        names = [f"t{number:02}" for number in range(20)]
        seen: list[str] = []
        tasks = [asyncio.create_task(_collect(stack, f"w{number}", seen, len(names))) for number in range(3)]

        await announce_start(stack, *names)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)

        assert sorted(seen) == names
        for task in tasks:
            await stop(task)

    async def test_b1_at_least_once_duplicate_yields_nothing(self, stack: ContractStack) -> None:
        ready = await announce_start(stack, "a")
        await stack.broker.announce(ready)
        await take(stack)
        await stack.broker.announce(ready)

        task = asyncio.create_task(take(stack, "w2"))

        assert await is_waiting(task)
        await stop(task)

    async def test_b1_at_least_once_only_to_workers_that_serve_the_queue(self, stack: ContractStack) -> None:
        task = asyncio.create_task(take(stack, "other", "gpu"))
        await announce_start(stack, "a", queue="mail")

        assert await is_waiting(task)
        assert [lease.token for lease in await take(stack, "mailer", "mail")] == ["a"]
        await stop(task)

    async def test_b1_at_least_once_no_more_than_the_limit(self, stack: ContractStack) -> None:
        await announce_start(stack, "a", "b", "c")

        taken = [await take(stack, limit=2)]
        while sum(map(len, taken)) < 3:
            taken.append(await take(stack, limit=2))

        assert max(map(len, taken)) <= 2
        assert {lease.token for leases in taken for lease in leases} == {"a", "b", "c"}

    async def test_b1_at_least_once_worker_that_stops_waiting_takes_nothing_along(
        self, stack: ContractStack
    ) -> None:
        task = asyncio.create_task(take(stack, "gone"))
        assert await is_waiting(task)
        await stop(task)

        await announce_start(stack, "a")

        assert [lease.token for lease in await take(stack, "w2")] == ["a"]

    async def test_b1_at_least_once_not_what_has_ended_meanwhile(self, stack: ContractStack) -> None:
        await announce_start(stack, "a")
        await stack.apply(cancel())

        task = asyncio.create_task(take(stack))

        assert await is_waiting(task)
        await stop(task)


class BrokerHints(Topic):
    guarantees = frozenset(("B2",))
    needs = frozenset(("commit", "broker"))

    async def test_b2_hint_only_lost_announcements_lose_no_work(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a"), token("b")))

        await stack.broker.announce(await stack.ledger.ready(RUN))

        seen: set[str] = set()
        while len(seen) < 2:
            seen |= {lease.token for lease in await take(stack)}
        assert seen == {"a", "b"}

    async def test_b2_hint_only_work_can_be_claimed_without_the_broker(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))

        assert set(await stack.take()) == {"a"}

    async def test_b2_hint_only_what_is_offered_to_others_is_found_here_too(
        self, stack: ContractStack
    ) -> None:
        [applied] = await stack.apply(start(RUN, token("a")))

        await stack.broker.offer(applied.ready)
        await stack.broker.offer([])

        assert [lease.token for lease in await take(stack)] == ["a"]

    async def test_b2_hint_only_false_announcements_yield_nothing(self, stack: ContractStack) -> None:
        await stack.broker.announce(
            [ReadyToken("ghost", "nowhere", "default", 9), ReadyToken("", "", "default", 0)]
        )
        await stack.broker.announce([])
        task = asyncio.create_task(take(stack))
        assert await is_waiting(task)

        await announce_start(stack, "a")

        assert [lease.token for lease in await task] == ["a"]


async def _collect(stack: ContractStack, worker: str, seen: list[str], enough: int) -> list[Lease]:
    """Claim until all workers together have seen enough."""
    leases: list[Lease] = []
    while len(seen) < enough:
        leases = await take(stack, worker, limit=3)
        seen += [lease.token for lease in leases]
    return leases
