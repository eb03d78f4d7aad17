"""One look for all who ask at the same time, and a fresh one for those who come after a change."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.engine.definitions import SharedReads


class Shop:
    """Something to look at, which answers when it is told to."""

    def __init__(self) -> None:
        self.looks: SharedReads[str] = SharedReads()
        self.calls: list[asyncio.Future[str]] = []
        self.kept: list[str] = []

    async def look(self) -> str:
        self.calls.append(asyncio.get_running_loop().create_future())
        return await self.calls[-1]

    async def ask(self, count: int = 1) -> list[asyncio.Task[str]]:
        tasks = [
            asyncio.create_task(self.looks.of("bread", self.look, self.kept.append)) for _ in range(count)
        ]
        await turn()
        return tasks


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_who_ask_at_the_same_time_share_one_look() -> None:
    shop = Shop()
    asked = await shop.ask(100)
    assert len(shop.calls) == 1
    shop.calls[0].set_result("rye")
    assert await asyncio.gather(*asked) == ["rye"] * 100
    assert shop.kept == ["rye"]


async def test_who_asks_after_the_answer_looks_again() -> None:
    shop = Shop()
    for answer in ("rye", "wheat"):
        (asked,) = await shop.ask()
        shop.calls[-1].set_result(answer)
        assert await asked == answer
    assert shop.kept == ["rye", "wheat"]


async def test_different_things_are_looked_at_apart() -> None:
    shop = Shop()
    (bread,) = await shop.ask()
    milk = asyncio.create_task(shop.looks.of("milk", shop.look, shop.kept.append))
    await turn()
    shop.calls[1].set_result("oat")
    assert await milk == "oat"
    assert not bread.done()
    shop.calls[0].set_result("rye")
    assert await bread == "rye"


async def test_an_error_is_the_error_of_who_looked_and_the_others_look_themselves() -> None:
    shop = Shop()
    asked = await shop.ask(3)
    shop.calls[0].set_exception(ConnectionError("closed"))
    await turn()
    assert len(shop.calls) == 2
    shop.calls[1].set_result("rye")
    with pytest.raises(ConnectionError):
        await asked[0]
    assert await asyncio.gather(*asked[1:]) == ["rye", "rye"]


async def test_a_cancelled_caller_takes_nobody_with_it() -> None:
    shop = Shop()
    looking, second, third = await shop.ask(3)
    third.cancel()
    looking.cancel()
    await turn()
    assert len(shop.calls) == 2
    shop.calls[1].set_result("rye")
    assert await second == "rye"
    assert looking.cancelled()
    assert third.cancelled()


async def test_a_look_from_before_a_change_is_not_kept_nor_shared_any_more() -> None:
    shop = Shop()
    (before,) = await shop.ask()
    shop.looks.forget("bread")
    (after,) = await shop.ask()
    assert len(shop.calls) == 2
    shop.calls[1].set_result("new")
    assert await after == "new"
    shop.calls[0].set_result("old")
    assert await before == "old"
    assert shop.kept == ["new"]
