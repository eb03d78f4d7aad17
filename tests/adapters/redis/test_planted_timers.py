"""Timers that other programs plant in Redis: each is handed over once, whoever dies, and nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio

from dalsegno.adapters.redis import RedisConnection
from dalsegno.adapters.redis import timers as module
from dalsegno.adapters.redis.dead_letters import RedisDeadLetters
from dalsegno.adapters.redis.errors import end_tasks
from dalsegno.adapters.redis.timers import PAYLOADS, PROCESSING, TIMERS, RedisTimers
from dalsegno.app import App
from dalsegno.errors import Unavailable
from dalsegno.ports.messages import ForeignMessage, Taken
from tests.servers.redis import RedisServer
from tests.waiting import come_about
from tests.wire.documents import TRIGGER, edit, graph
from tests.wire.master import message

APPLIED = Taken("applied")


class Recorder:
    """An intake that answers as it is told to, and counts what it was given."""

    def __init__(self, answer: Callable[[ForeignMessage], Awaitable[Taken]] | None = None) -> None:
        self._answer = answer
        self.taken: Counter[str] = Counter()
        self.messages: list[ForeignMessage] = []

    async def take(self, message: ForeignMessage) -> Taken:
        self.messages.append(message)
        self.taken[message.identity or ""] += 1
        return await self._answer(message) if self._answer is not None else APPLIED


class Scheduler:
    def __init__(self, url: str) -> None:
        self.connection = RedisConnection(url)
        self.dead_letters = RedisDeadLetters(self.connection)
        self.timers = RedisTimers(self.connection, self.dead_letters)

    async def start(self, intake: Recorder) -> None:
        await self.connection.open()
        self.timers.start(intake)

    async def die(self) -> None:
        """End as ``kill -9`` would: nothing is handed back."""
        if self.timers._task is not None:
            await end_tasks(self.timers._task)
        self.timers._in_hand.clear()
        await self.connection.close()

    async def stop(self) -> None:
        await self.timers.stop()
        await self.connection.close()


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    async with redis.asyncio.from_url(redis_url) as opened:
        yield opened


@pytest.fixture
async def schedulers(redis_url: str) -> AsyncIterator[Callable[[], Scheduler]]:
    made: list[Scheduler] = []

    def make() -> Scheduler:
        made.append(Scheduler(redis_url))
        return made[-1]

    yield make
    for each in made:
        await each.stop()


async def plant(client: Any, *ids: str, body: bytes = b"{}", at: float | None = None) -> None:
    """As RFC 006 has it: the payload first, then the time."""
    due = int((time.time() if at is None else at) * 1000)
    async with client.pipeline() as pipeline:
        for timer in ids:
            pipeline.hset(PAYLOADS, timer, body)
            pipeline.zadd(TIMERS, {timer: due})
        await pipeline.execute()


async def is_clean(client: Any) -> bool:
    return not await client.exists(TIMERS, PAYLOADS, PROCESSING)


async def test_timers_of_a_scheduler_that_dies_after_the_claim_fire_once_each_within_ten_seconds(
    client: Any, schedulers: Callable[[], Scheduler]
) -> None:
    async def never(_: ForeignMessage) -> Taken:
        await asyncio.sleep(3600)
        return APPLIED

    ids = [f"timer-{number}" for number in range(500)]
    first, second, stuck, intake = schedulers(), schedulers(), Recorder(never), Recorder()
    await first.start(stuck)
    await plant(client, *ids)
    await come_about(lambda: len(stuck.messages) > 0, "the first has claimed")
    assert await client.zcard(PROCESSING) == 500
    await second.start(intake)
    await first.die()
    died = time.monotonic()
    await come_about(lambda: is_clean(client), "all were handed over", 12)
    assert time.monotonic() - died < 10
    assert intake.taken == Counter(ids)


async def test_only_what_is_due_is_handed_over_by_one_scheduler_at_a_time(
    client: Any, schedulers: Callable[[], Scheduler]
) -> None:
    intake = Recorder()
    for _ in range(3):
        await schedulers().start(intake)
    await plant(client, "later", at=time.time() + 3600)
    await plant(client, *"abc", body=b'{"n": 1}')
    await come_about(lambda: len(intake.messages) == 3, "three are due")
    given = {(each.identity, each.body, each.source, each.timer) for each in intake.messages}
    assert given == {(timer, b'{"n": 1}', PAYLOADS, True) for timer in "abc"}
    assert await client.zrange(TIMERS, 0, -1) == [b"later"]
    await come_about(lambda: is_empty(client), "nothing is in hand")
    assert await client.hkeys(PAYLOADS) == [b"later"]


async def is_empty(client: Any) -> bool:
    return not await client.zcard(PROCESSING)


async def test_refused_payload_becomes_a_dead_letter_that_can_be_sent_again(
    client: Any, schedulers: Callable[[], Scheduler]
) -> None:
    answers = [Taken("refused", reason="/current_node: is missing", code="BAD_MESSAGE"), APPLIED]

    async def answer(_: ForeignMessage) -> Taken:
        return answers.pop(0)

    scheduler, intake = schedulers(), Recorder(answer)
    await scheduler.start(intake)
    await plant(client, "bad", body=b"\xff no JSON")
    await come_about(lambda: is_clean(client), "it is gone")
    [letter] = await scheduler.dead_letters.list(10)
    assert (letter.body, letter.source, letter.code) == (b"\xff no JSON", PAYLOADS, "BAD_MESSAGE")
    assert letter.reason == "/current_node: is missing"
    assert abs(letter.at - time.time()) < 60
    assert await scheduler.dead_letters.get(letter.id) == letter
    assert await scheduler.dead_letters.get("nonsense") is None

    assert await scheduler.dead_letters.requeue(letter.id)
    await come_about(lambda: not answers, "it is handed over again")
    assert [each.identity for each in intake.messages] == ["bad", "bad"]
    assert not await scheduler.dead_letters.list(10)
    assert not await scheduler.dead_letters.requeue(letter.id)
    assert not await scheduler.dead_letters.drop(letter.id)


async def test_large_payloads_are_read_a_few_at_a_time_and_those_too_large_not_at_all(
    client: Any, schedulers: Callable[[], Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 1_000)
    monkeypatch.setattr(module, "BYTES_AT_ONCE", 2_500)
    monkeypatch.setattr(module, "SHOWN", 10)
    at_once, most = 0, 0

    async def answer(_: ForeignMessage) -> Taken:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return APPLIED

    scheduler, intake = schedulers(), Recorder(answer)
    await plant(client, *"abcde", body=b"x" * 1_000)
    await plant(client, "huge", body=b"y" * 1_001)
    await scheduler.start(intake)
    await come_about(lambda: is_clean(client), "all are gone")
    assert intake.taken == Counter("abcde")
    assert most == 2
    [letter] = await scheduler.dead_letters.list(10)
    assert (letter.code, letter.body) == ("TOO_LARGE", b"y" * 10)
    assert "1,001 bytes" in letter.reason


async def test_fault_that_repeats_is_a_dead_letter_after_three_tries(
    client: Any, schedulers: Callable[[], Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALE_SECONDS", 0.1)

    async def fail(_: ForeignMessage) -> Taken:
        raise ZeroDivisionError("a bug")

    scheduler, intake = schedulers(), Recorder(fail)
    await scheduler.start(intake)
    await plant(client, "a")
    await come_about(lambda: is_clean(client), "it is given up")
    assert intake.taken["a"] == 3
    [letter] = await scheduler.dead_letters.list(10)
    assert "ZeroDivisionError: a bug" in letter.reason


async def test_timers_wait_while_the_store_is_away(
    client: Any, schedulers: Callable[[], Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALE_SECONDS", 0.1)
    monkeypatch.setattr(module, "PAUSE", 0.05)
    away = True

    async def answer(_: ForeignMessage) -> Taken:
        if away:
            raise Unavailable("the store is away")
        return APPLIED

    scheduler, intake = schedulers(), Recorder(answer)
    await scheduler.start(intake)
    await plant(client, "a")
    await come_about(lambda: intake.taken["a"] > module.MOST_TRIES, "it is tried for as long as needed")
    away = False
    await come_about(lambda: is_clean(client), "it is handed over")
    assert not await scheduler.dead_letters.list(10)


async def test_timer_without_a_payload_is_left_for_a_while_and_dropped(
    client: Any,
    schedulers: Callable[[], Scheduler],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "STALE_SECONDS", 1.0)
    intake = Recorder()
    await schedulers().start(intake)
    now = int(time.time() * 1000)
    await client.zadd(TIMERS, {"half": now, "never": now})
    await come_about(lambda: client.zcard(PROCESSING), "they are claimed")
    await client.hset(PAYLOADS, "half", b"{}")
    await come_about(lambda: is_clean(client), "both are gone")
    assert intake.taken == Counter(["half"])
    assert "'never' has no payload" in caplog.text


async def test_timer_planted_again_while_it_is_handed_over_keeps_its_payload(
    client: Any, schedulers: Callable[[], Scheduler]
) -> None:
    async def plant_again(given: ForeignMessage) -> Taken:
        if given.body == b"1":
            await plant(client, "a", body=b"2")
        return APPLIED

    intake = Recorder(plant_again)
    await schedulers().start(intake)
    await plant(client, "a", body=b"1")
    await come_about(lambda: is_clean(client), "both were handed over")
    assert [each.body for each in intake.messages] == [b"1", b"2"]


async def test_wrong_type_of_key_is_reported_and_stops_nothing(
    client: Any, schedulers: Callable[[], Scheduler], caplog: pytest.LogCaptureFixture
) -> None:
    await client.set(TIMERS, "nonsense")
    intake = Recorder()
    await schedulers().start(intake)
    await come_about(lambda: "planted timers cannot be read" in caplog.text, "it is reported")
    await client.delete(TIMERS)
    await plant(client, "a")
    await come_about(lambda: is_clean(client), "it is handed over")


async def test_planted_timer_of_a_wait_node_goes_on_with_its_successor(
    client: Any, redis_url: str, empty_postgres: Callable[[], str]
) -> None:
    """The whole way: a frozen message in Redis, the engine's intake, the ledger, a worker that hears of it."""
    pause = {"id": "pause", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}}
    definition = graph([TRIGGER, pause, edit("after")], "start->pause", "pause->after")
    body = json.dumps(message("planted-1", "pause", definition)).encode()
    async with App(empty_postgres(), broker=redis_url).running() as app:
        await plant(client, "timer-1", body=body)
        await come_about(lambda: app.client.stack.archive.outline("planted-1"), "it is adopted")
        async with asyncio.timeout(20):
            await app.handle("planted-1").aresult()
        kinds = [event.kind for event in await app.client.stack.archive.events("planted-1")]
        assert kinds.count("NodeCompleted") == 2
    await come_about(lambda: is_clean(client), "nothing of it stays")
    keys = [key async for key in client.scan_iter()]
    assert not [key for key in keys if b"planted" in key]
    assert not await client.xlen("wf:stream:dead")


async def test_idle_process_sends_few_commands(
    redis_factory: Callable[..., RedisServer], empty_postgres: Callable[[], str]
) -> None:
    """In the best of a few moments: in the first ones it may still be starting."""
    server = redis_factory()
    rates = []
    async with (
        redis.asyncio.from_url(server.url) as client,
        App(empty_postgres(), broker=server.url).running(),
    ):
        while not rates or (rates[-1] >= 5.0 and len(rates) < 5):
            before = (await client.info("stats"))["total_commands_processed"]
            await asyncio.sleep(2.5)
            after = (await client.info("stats"))["total_commands_processed"]
            rates.append((after - before - 1) / 2.5)
    print(f"\n{rates[-1]:.1f} commands a second while idle")  # noqa: T201 - the figure is worth seeing
    assert rates[-1] < 5.0
