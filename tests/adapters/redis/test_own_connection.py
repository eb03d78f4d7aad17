"""OwnConnection on a real Redis: replies, errors, and what ends the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import ResponseError

from dalsegno.adapters.redis import own_connection as module
from dalsegno.adapters.redis.address import read_address
from dalsegno.adapters.redis.errors import BROKEN
from dalsegno.adapters.redis.own_connection import OwnConnection
from tests.servers.redis import RedisServer
from tests.waiting import come_about


@pytest.fixture
async def own(redis_url: str) -> AsyncIterator[OwnConnection]:
    made = OwnConnection(read_address(redis_url))
    yield made
    await made.close()


async def test_replies_are_in_the_order_of_the_commands_with_errors_among_them(own: OwnConnection) -> None:
    set_, refused, got = await own.call([("SET", "a", "x"), ("INCR", "a"), ("GET", "a")])
    assert (set_, got) == (b"OK", b"x")
    assert isinstance(refused, ResponseError)
    assert await own.call([("GET", "none")]) == [None]


async def test_calls_at_the_same_time_get_their_own_replies(own: OwnConnection) -> None:
    found = await asyncio.gather(*(own.call([("ECHO", str(number))]) for number in range(20)))
    assert found == [[str(number).encode()] for number in range(20)]


async def test_cancelled_call_leaves_no_reply_behind(own: OwnConnection) -> None:
    [number] = await own.call([("CLIENT", "ID")])
    blocking = asyncio.create_task(own.call([("BLPOP", "empty", "60")], blocking=60.0))
    await asyncio.sleep(0.05)
    blocking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocking
    [another] = await own.call([("CLIENT", "ID")])
    assert another != number


async def test_connection_that_the_server_has_closed_is_not_used_again(
    own: OwnConnection, redis_url: str
) -> None:
    [number] = await own.call([("CLIENT", "ID")])
    other = OwnConnection(read_address(redis_url))
    assert await other.call([("CLIENT", "KILL", "ID", number)]) == [1]
    await other.close()
    await come_about(own._connection.can_read, "the end of the connection is seen", 20)
    assert await own.call([("PING",)]) == [b"PONG"]


async def test_server_that_does_not_answer_is_an_error_and_later_used_again(
    private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    own = OwnConnection(read_address(private_redis.url))
    assert await own.call([("PING",)]) == [b"PONG"]
    private_redis.suspend()
    with pytest.raises(BROKEN):
        await own.call([("PING",)])
    private_redis.resume()
    monkeypatch.setattr(module, "ANSWER_SECONDS", 20.0)
    assert await own.call([("PING",)]) == [b"PONG"]
    await own.close()
