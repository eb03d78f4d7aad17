"""Announcements between processes over Redis: to whom they go, and what happens while Redis is empty, dead, silent."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count

import asyncpg
import pytest

from dalsegno.adapters.postgres.messaging import broker as postgres_broker
from dalsegno.adapters.postgres.messaging.listener import CHANNEL, NEWS
from dalsegno.adapters.redis import RedisBroker, RedisConnection
from dalsegno.adapters.redis import broker as module
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, ReadyToken
from dalsegno.ports.stack import Stack
from dalsegno.testing.contract.builders import start, token
from dalsegno.wiring import open_stack
from tests.adapters.postgres.meanwhile import act_beside
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.waiting import come_about

SOON = 30.0
"""Less than the time after which a worker looks by itself where it looks seldom."""
SELDOM = 60.0
_numbers = count()

Open = Callable[..., Awaitable[Stack]]


@pytest.fixture
async def opened(empty_postgres: Callable[[], str]) -> AsyncIterator[Open]:
    """Stacks on one database, as processes have them."""
    url = empty_postgres()
    stacks: list[Stack] = []

    async def make(broker: str | None) -> Stack:
        stacks.append(await open_stack(url, broker=broker))
        return stacks[-1]

    yield make
    for stack in reversed(stacks):
        await stack.close()


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is found because it is announced, or not within a test."""
    monkeypatch.setattr(module, "LOOK_EVERY", SELDOM)
    monkeypatch.setattr(postgres_broker, "LOOK_EVERY", SELDOM)


async def commit(stack: Stack, *names: str) -> Sequence[ReadyToken]:
    execution = f"execution-{next(_numbers)}"
    [outcome] = await stack.ledger.commit(
        [start(execution, *(token(f"{execution}-{each}") for each in names))]
    )
    assert isinstance(outcome, Applied)
    return outcome.ready


def broker_of(stack: Stack) -> RedisBroker:
    assert isinstance(stack.broker, RedisBroker)
    return stack.broker


def connection_of(stack: Stack) -> RedisConnection:
    [server] = stack.servers
    assert isinstance(server, RedisConnection)
    return server


async def waiting(stack: Stack, *others: Stack, limit: int = 10) -> asyncio.Task[list[Lease]]:
    """A worker that has found nothing, of which the others know it."""
    task = asyncio.create_task(stack.broker.take(f"w{next(_numbers)}", ["default"], limit))
    name = broker_of(stack).channel.name
    await come_about(lambda: all(name in broker_of(other)._idle for other in others), "the others know")
    return task


async def taken(task: asyncio.Task[list[Lease]], seconds: float = SOON) -> list[str]:
    return [lease.token for lease in await asyncio.wait_for(task, seconds)]


@pytest.mark.usefixtures("no_looks")
async def test_token_is_leased_by_name_in_another_process(
    opened: Open, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await opened(redis_url), await opened(redis_url)
    task = await waiting(other, one)
    claims: list[str] = []

    async def claimed() -> None:
        claims.append("claim")

    act_beside(monkeypatch, other.ledger, "claim", before=claimed)
    ready = await commit(one, "a")
    await one.broker.announce(ready)
    assert await taken(task) == [ready[0].token]
    assert not claims


@pytest.mark.usefixtures("no_looks")
async def test_many_tokens_are_shared_by_those_who_wait(opened: Open, redis_url: str) -> None:
    one, *others = [await opened(redis_url) for _ in range(3)]
    tasks = [await waiting(other, one, limit=4) for other in others]
    ready = await commit(one, *"abcdefgh")
    await one.broker.announce(ready)
    first, second = [await taken(task) for task in tasks]
    assert len(first) == len(second) == 4
    assert {*first, *second} == {each.token for each in ready}


@pytest.mark.usefixtures("no_looks")
async def test_more_announced_tokens_than_slots_are_taken_by_priority(opened: Open, redis_url: str) -> None:
    """Also one of which this process was not told is taken before those of lower priority that it was."""
    one, other = await opened(redis_url), await opened(redis_url)
    task = await waiting(other, one, limit=1)
    tokens = [
        token("low"),
        token("lower", priority=-1),
        token("high", priority=5),
        token("unknown", priority=7),
    ]
    [outcome] = await one.ledger.commit([start("priorities", *tokens)])
    assert isinstance(outcome, Applied)
    await one.broker.announce([each for each in outcome.ready if each.token != "unknown"])
    order = await taken(task)
    for _ in range(3):
        order += await taken(await waiting(other, limit=1))
    assert order == ["unknown", "high", "low", "lower"]


@pytest.mark.usefixtures("no_looks")
async def test_announced_tokens_leave_a_slot_to_what_nobody_has_announced(
    opened: Open, redis_url: str
) -> None:
    """A token of higher priority whose announcement was lost does not wait until nothing is announced any more."""
    one, other = await opened(redis_url), await opened(redis_url)
    task = await waiting(other, one, limit=1)
    [outcome] = await one.ledger.commit([start("lost", token("low"), token("unknown", priority=7))])
    assert isinstance(outcome, Applied)
    await one.broker.announce([each for each in outcome.ready if each.token == "low"])
    assert await taken(task) == ["unknown"]


@pytest.mark.usefixtures("no_looks")
async def test_nothing_is_sent_while_nobody_waits(
    opened: Open, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KNOWN_AFTER", 0.0)
    one, _ = await opened(redis_url), await opened(redis_url)
    await asyncio.sleep(0.05)
    sent: list[object] = []
    monkeypatch.setattr(connection_of(one), "send", lambda *command: sent.append(command))
    await one.broker.announce(await commit(one, "a", "b"))
    assert not sent


@pytest.mark.usefixtures("no_looks")
async def test_announcement_before_the_report_of_who_waits_is_repeated(
    opened: Open, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KNOWN_AFTER", 0.0)
    one, other = await opened(redis_url), await opened(redis_url)
    claimed, go_on = asyncio.Event(), asyncio.Event()

    async def tarry() -> None:
        claimed.set()
        await go_on.wait()

    act_beside(monkeypatch, other.ledger, "claim", after=tarry)
    task = asyncio.create_task(other.broker.take("w", ["default"], 10))
    await claimed.wait()
    ready = await commit(one, "a")
    await one.broker.announce(ready)
    go_on.set()
    assert await taken(task) == [ready[0].token]


@pytest.mark.usefixtures("no_looks")
async def test_process_that_ends_at_once_is_heard(opened: Open, redis_url: str) -> None:
    other = await opened(redis_url)
    task = asyncio.create_task(other.broker.take("w", ["default"], 10))
    one = await opened(redis_url)
    ready = await commit(one, "a")
    await one.broker.announce(ready)
    await one.broker.close()
    assert await taken(task) == [ready[0].token]


@pytest.mark.usefixtures("no_looks")
async def test_offer_reaches_all_others(opened: Open, redis_url: str) -> None:
    one, other = await opened(redis_url), await opened(redis_url)
    task = await waiting(other, one)
    ready = await commit(one, "a")
    await one.broker.offer(ready)
    assert await taken(task) == [ready[0].token]


@pytest.mark.usefixtures("no_looks")
async def test_emptied_database_costs_nothing(
    opened: Open, redis_server: RedisServer, redis_url: str
) -> None:
    one, other = await opened(redis_url), await opened(redis_url)
    task = await waiting(other, one)
    await come_about(lambda: redis_server.ask("EXISTS wf:ready:default") == ":1", "the stream is read")
    redis_server.flush()
    await come_about(lambda: redis_server.ask("EXISTS wf:ready:default") == ":1", "the stream is read again")
    ready = await commit(one, "a")
    await one.broker.announce(ready)
    assert await taken(task) == [ready[0].token]


@pytest.mark.parametrize("appendonly", [True, False])
async def test_killed_redis_stops_nothing_and_is_used_again(
    opened: Open, redis_factory: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch, appendonly: bool
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", SELDOM)
    server = redis_factory(appendonly=appendonly)
    one, other = await opened(server.url), await opened(server.url)
    task = await waiting(other, one)
    server.kill()
    ready = await commit(one, "a")
    await one.broker.announce(ready)
    assert await taken(task) == [ready[0].token]

    server.start()
    await come_about(lambda: connection_of(one).working and connection_of(other).working, "Redis is back")
    task = await waiting(other, one)
    ready = await commit(one, "b")
    await one.broker.announce(ready)
    assert await taken(task) == [ready[0].token]


async def test_silent_redis_delays_until_the_next_look(
    opened: Open, private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.5)
    one, other = await opened(private_redis.url), await opened(private_redis.url)
    task = await waiting(other, one)
    private_redis.suspend()
    try:
        ready = await commit(one, "a")
        await one.broker.announce(ready)
        assert await taken(task) == [ready[0].token]
    finally:
        private_redis.resume()


@pytest.mark.usefixtures("no_looks")
async def test_start_in_the_transaction_of_a_caller_is_heard(opened: Open, redis_url: str) -> None:
    """Such a transaction notifies by itself: its process may not know of Redis."""
    one, other = await opened(redis_url), await opened(redis_url)
    task = await waiting(other, one)
    ready = await commit(one, "a")
    connection = await asyncpg.connect(one.url)
    try:
        async with asyncio.timeout(SOON):
            while not task.done():  # the other process may not listen yet
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, NEWS)
                await asyncio.wait([task], timeout=0.2)
    finally:
        await connection.close()
    assert await taken(task) == [ready[0].token]


@pytest.mark.usefixtures("no_looks")
async def test_wake_ups_reach_processes_behind_a_pooler(
    pgbouncer: PgBouncer,
    private_postgres: PostgresServer,
    redis_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There ``LISTEN`` does not work, and is not missed."""
    private_postgres.create_database("pooled")
    one = await open_stack(pgbouncer.url_of("pooled"), broker=redis_url)
    other = await open_stack(pgbouncer.url_of("pooled"), broker=redis_url)
    try:
        task = await waiting(other, one)
        ready = await commit(one, "a")
        await one.broker.announce(ready)
        assert await taken(task) == [ready[0].token]
    finally:
        await other.close()
        await one.close()
    assert "notifications" not in caplog.text


@pytest.mark.usefixtures("no_looks")
async def test_wake_up_is_not_slower_than_by_notification(opened: Open, redis_url: str) -> None:
    """A worker of another process has the token about as soon as over PostgreSQL's own notifications."""
    pairs = [(await opened(url), await opened(url)) for url in (redis_url, None)]
    rounds = [[await latency(*pair, f"w{number}") for pair in pairs] for number in range(30)]
    over_redis, over_postgres = (statistics.quantiles(times)[0] for times in zip(*rounds, strict=True))
    print(f"\nover Redis {over_redis * 1000:.1f} ms, over NOTIFY {over_postgres * 1000:.1f} ms")  # noqa: T201 - the figures are worth seeing
    assert over_redis < 10 * over_postgres


async def latency(one: Stack, other: Stack, worker: str) -> float:
    """The time from an announcement to the lease in another process."""
    task = asyncio.create_task(other.broker.take(worker, ["default"], 10))
    await asyncio.sleep(0.03)
    ready = await commit(one, "a")
    began = time.perf_counter()
    await one.broker.announce(ready)
    assert await taken(task) == [ready[0].token]
    return time.perf_counter() - began
