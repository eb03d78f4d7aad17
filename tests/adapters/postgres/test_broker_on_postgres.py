"""Wake-ups between processes: none inside a commit, none while everybody is busy, and none that anything depends on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.neighbours import Message
from dalsegno.adapters.postgres.messaging import broker as broker_module
from dalsegno.adapters.postgres.messaging.listener import LARGEST, texts_of
from dalsegno.testing.contract.builders import start, token
from tests.adapters.postgres.meanwhile import SOON, act_beside, until
from tests.adapters.postgres.pooler import DeafPooler
from tests.adapters.postgres.processes import begin, broker_of, tarrying, two, waiting
from tests.adapters.postgres.stacks import PostgresStacks
from tests.servers.postgres import PostgresServer


@pytest.fixture
async def stacks(postgres_url: str) -> AsyncIterator[PostgresStacks]:
    stacks = PostgresStacks(postgres_url)
    yield stacks
    await stacks.close()


async def test_worker_of_another_process_is_woken(stacks: PostgresStacks) -> None:
    here, there = await two(stacks)
    taking = await waiting(there, here)

    await begin(here, "run-1", "a")

    [lease] = await asyncio.wait_for(taking, SOON)
    assert lease.token == "a"


async def test_commit_itself_sends_nothing(stacks: PostgresStacks) -> None:
    here, there = await two(stacks)
    taking = await waiting(there, here)
    sent = broker_of(here).listener.sent

    for number in range(20):
        await here.apply(start(f"run-{number}", token("a")))

    assert broker_of(here).listener.sent == sent
    taking.cancel()


async def test_nothing_is_sent_while_nobody_is_idle(stacks: PostgresStacks) -> None:
    here, _there = await two(stacks)
    sent = broker_of(here).listener.sent

    for number in range(20):
        await begin(here, f"run-{number}", "a")

    await asyncio.sleep(0)
    assert broker_of(here).listener.sent == sent


async def test_an_idle_process_is_woken_once_for_many_announcements(stacks: PostgresStacks) -> None:
    here, there = await two(stacks)
    taking = await waiting(there, here)
    sent = broker_of(here).listener.sent

    for number in range(50):
        await begin(here, f"run-{number}", "a")
    await asyncio.wait_for(taking, SOON)

    await until(lambda: broker_of(here).listener.sent > sent)
    assert broker_of(here).listener.sent == sent + 1


async def test_process_that_has_taken_what_it_was_woken_for_is_not_woken_again(
    stacks: PostgresStacks,
) -> None:
    here, there = await two(stacks)
    taking = await waiting(there, here)
    sent = broker_of(here).listener.sent
    await begin(here, "run-1", "a")
    await asyncio.wait_for(taking, SOON)

    again = await waiting(there, here)  # it is known to be idle, and was not answered

    assert broker_of(here).listener.sent == sent + 1
    again.cancel()


async def test_work_goes_to_the_own_worker_without_a_message(stacks: PostgresStacks) -> None:
    here, there = await two(stacks)
    elsewhere = await waiting(there, here)
    own = await waiting(here, there, worker="w2")
    sent = broker_of(here).listener.sent

    await begin(here, "run-1", "a")

    assert [lease.token for lease in await asyncio.wait_for(own, SOON)] == ["a"]
    assert broker_of(here).listener.sent == sent
    elsewhere.cancel()


async def test_what_is_offered_to_others_wakes_them_and_not_the_own_worker(stacks: PostgresStacks) -> None:
    here, there = await two(stacks)
    elsewhere = await waiting(there, here)
    own = await waiting(here, there, worker="w2")
    [applied] = await here.apply(start("run-1", token("a")))

    await here.broker.offer(applied.ready)

    assert [lease.token for lease in await asyncio.wait_for(elsewhere, SOON)] == ["a"]
    assert not own.done()
    own.cancel()


async def test_process_that_has_offered_something_lets_others_go_first(stacks: PostgresStacks) -> None:
    here, there = await two(stacks)
    own = await waiting(here, there, worker="w2")
    [applied] = await here.apply(start("run-1", token("a")))
    clock = asyncio.get_running_loop().time
    offered_at = clock()
    await here.broker.offer(applied.ready)

    await here.broker.announce(applied.ready)

    assert [lease.token for lease in await asyncio.wait_for(own, SOON)] == ["a"]
    assert clock() - offered_at >= broker_module.OFFER_PAUSE * 0.9


async def test_work_announced_while_idleness_is_on_its_way_is_not_missed(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim has found nothing, and whoever announces does not know yet that anybody waits."""
    here, there = await two(stacks)
    taking, go_on = await tarrying(there, monkeypatch)
    await begin(here, "run-1", "a")
    go_on.set()

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["a"]


async def test_newcomer_learns_who_is_idle(stacks: PostgresStacks) -> None:
    there = await stacks.open()
    await until(lambda: broker_of(there).listener.working)
    taking = await waiting(there)
    newcomer = await stacks.open()
    name = broker_of(there).listener.name
    await until(lambda: name in broker_of(newcomer)._idle)

    await begin(newcomer, "run-1", "a")

    assert await asyncio.wait_for(taking, SOON)


async def test_lost_message_is_made_good_by_a_look(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "LOOK_EVERY", 0.2)
    here, there = await two(stacks)
    taking = await waiting(there, here)

    await here.apply(start("run-1", token("a")))  # announced by nobody

    assert await asyncio.wait_for(taking, SOON)


async def test_listener_comes_back_after_the_server_was_killed(private_postgres: PostgresServer) -> None:
    stacks = PostgresStacks(private_postgres.create_database("listening"))
    here, there = await two(stacks)
    private_postgres.kill()
    await until(lambda: not any(broker_of(stack).listener.working for stack in (here, there)))
    private_postgres.start()
    await until(lambda: all(broker_of(stack).listener.working for stack in (here, there)), seconds=60)

    taking = await waiting(there, here)
    await begin(here, "run-1", "a")

    assert await asyncio.wait_for(taking, SOON)
    await stacks.close()


async def test_listener_that_hears_nothing_says_so_and_work_is_found_by_looking(
    stacks: PostgresStacks, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with DeafPooler(postgres_url) as pooler:
        here, there = await stacks.open(), await stacks.open(listen_at=pooler.url)
        with caplog.at_level(logging.WARNING, "dalsegno.postgres"):
            await until(lambda: "DALSEGNO_LISTEN" in caplog.text)
        assert pooler.swallowed > 0
        assert not broker_of(there).listener.working
        taking = asyncio.create_task(there.broker.take("w1", ["default"], 10))

        await begin(here, "run-1", "a")

        assert await asyncio.wait_for(taking, SOON)


def test_long_lists_travel_in_several_messages() -> None:
    names = tuple(f"execution-{number:040}" for number in range(1000))

    texts = texts_of(Message("me", ended=names))

    assert len(texts) > 1
    assert max(len(text.encode()) for text in texts) <= LARGEST
    assert sum(text.count("execution-") for text in texts) == len(names)


async def test_after_a_claim_that_left_nothing_there_is_no_other_without_news(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = await stacks.open()
    await until(lambda: broker_of(stack).listener.sent)  # its hello: until then it may look again at any time
    claims = 0

    async def count() -> None:
        nonlocal claims
        claims += 1

    act_beside(monkeypatch, stack.ledger, "claim", before=count)
    await begin(stack, "run-1", "a")
    [lease] = await stack.broker.take("w1", ["default"], 10)
    taking = asyncio.create_task(stack.broker.take("w1", ["default"], 9))
    await until(lambda: len(broker_of(stack).waiting_workers))
    assert (lease.token, claims) == ("a", 1)

    await begin(stack, "run-2", "b")

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["b"]
    assert claims == 2


async def test_news_that_came_while_the_worker_was_busy_lead_to_a_claim(stacks: PostgresStacks) -> None:
    stack = await stacks.open()
    await begin(stack, "run-1", "a")
    await stack.broker.take("w1", ["default"], 10)

    await begin(stack, "run-2", "b")

    [lease] = await asyncio.wait_for(stack.broker.take("w1", ["default"], 9), SOON)
    assert lease.token == "b"


async def test_a_full_claim_and_another_worker_ask_again(stacks: PostgresStacks) -> None:
    stack = await stacks.open()
    await begin(stack, "run-1", "a", "b", "c", "d")

    assert len(await stack.broker.take("w1", ["default"], 2)) == 2
    assert len(await asyncio.wait_for(stack.broker.take("w1", ["default"], 1), SOON)) == 1
    assert len(await asyncio.wait_for(stack.broker.take("w2", ["default"], 9), SOON)) == 1
