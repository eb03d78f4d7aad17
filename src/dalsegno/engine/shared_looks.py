"""Callers that want to know the same at the same time share one look at the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedLooks(Generic[T]):
    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[T | None]] = {}

    async def of(self, key: str, look: Callable[[], Awaitable[T]], keep: Callable[[T], None]) -> T:
        """What ``look`` finds, now or in a call that is under way already; ``keep`` gets it once. Where that call
        breaks, each of those who waited looks for itself: the caller may have been at fault, or was cancelled."""
        while (other := self._under_way.get(key)) is not None:
            if (found := await asyncio.shield(other)) is not None:
                return found
        answer = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            found = await look()
            if self._under_way.get(key) is answer:
                keep(found)
            answer.set_result(found)
            return found
        finally:
            if self._under_way.get(key) is answer:
                del self._under_way[key]
            if not answer.done():
                answer.set_result(None)

    def forget(self, key: str) -> None:
        """What is under way may not know the latest: it is not kept, and who asks from now on looks again."""
        self._under_way.pop(key, None)
