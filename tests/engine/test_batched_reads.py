"""Looks at many keys: those who ask during a look share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dalsegno.engine.definitions import GroupedReads
from dalsegno.errors import Unavailable


async def test_keys_asked_for_during_a_look_go_together_with_the_next_one() -> None:
    looks: list[list[str]] = []
    begun = asyncio.Event()

    async def look(keys: Sequence[str]) -> dict[str, str]:
        looks.append(list(keys))
        begun.set()
        await asyncio.sleep(0)
        return {key: key.upper() for key in keys if key != "gone"}

    grouped = GroupedReads(look, 2)
    first = asyncio.create_task(grouped.of("a"))
    await begun.wait()
    assert await asyncio.gather(*map(grouped.of, ("b", "gone", "b", "c"))) == ["B", None, "B", "C"]
    assert await first == "A"
    assert looks == [["a"], ["b", "gone"], ["c"]]


async def test_an_error_reaches_those_who_asked_and_the_next_look_is_made() -> None:
    faults = [Unavailable("the store is away")]

    async def look(keys: Sequence[str]) -> dict[str, int]:
        if faults:
            raise faults.pop()
        return dict.fromkeys(keys, 1)

    grouped = GroupedReads(look, 10)
    failed = await asyncio.gather(grouped.of("a"), grouped.of("b"), return_exceptions=True)
    assert [type(error) for error in failed] == [Unavailable, Unavailable]
    assert await grouped.of("a") == 1


async def test_a_caller_that_is_cancelled_leaves_the_others_their_answer() -> None:
    async def look(keys: Sequence[str]) -> dict[str, int]:
        await asyncio.sleep(0)
        return dict.fromkeys(keys, 1)

    grouped = GroupedReads(look, 10)
    leaving, staying = (asyncio.create_task(grouped.of("a")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await staying == 1
