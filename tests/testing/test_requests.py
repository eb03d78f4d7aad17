"""The kit asks workflows: time passes until there is an answer."""

from __future__ import annotations

import pytest

from dalsegno import Conflict, RequestRejected, request, requests, sleep
from dalsegno.testing import Stuck, TestKit


def shop(kit: TestKit):  # type: ignore[no-untyped-def]
    @kit.workflow
    async def quotes() -> int:
        count = 0
        async for asked in requests("quote"):
            await sleep("1d")
            count += 1
            if asked.payload == "no":
                asked.reject("not today")
            else:
                asked.reply(asked.payload * 2)
            if count == 2:
                break
        return count

    return quotes


def test_an_answer_may_take_days() -> None:
    with TestKit() as kit:
        handle = kit.start(shop(kit))
        began = kit.now
        assert kit.ask(handle, "quote", 4) == 8
        assert (kit.now - began).days == 1
        with pytest.raises(RequestRejected, match="not today"):
            kit.ask(handle.id, "quote", "no")
        assert handle.result() == 2
        with pytest.raises(Conflict, match="it has ended"):
            kit.ask(handle, "quote", 4)


async def test_the_application_asks_inside_the_kit() -> None:
    async with TestKit() as kit:
        handle = await kit.astart(shop(kit))
        assert await handle.aask("quote", 4) == 8
        assert await kit.aask(handle, "quote", 5) == 10
        assert await handle.aresult() == 2


def test_a_request_that_nobody_receives_says_so_at_once() -> None:
    with TestKit() as kit:

        @kit.workflow
        async def other() -> None:
            await request("price")

        handle = kit.start(other)
        with pytest.raises(Stuck, match=r"request 'price' has not arrived; send it with handle.ask"):
            kit.ask(handle, "quote")


def test_requests_survive_a_crash_of_the_worker() -> None:
    with TestKit() as kit:
        handle = kit.start(shop(kit))
        kit.crash_before(3)
        assert kit.ask(handle, "quote", 4, id="q") == 8
        kit.crash()
        assert kit.ask(handle, "quote", 4, id="q") == 8
        assert [event.kind for event in handle.events()].count("RequestAnswered") == 1
