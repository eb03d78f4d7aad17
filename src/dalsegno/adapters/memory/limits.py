"""MemoryLimits: the operators' rules for keys."""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.adapters.memory.store import MemoryStore
from dalsegno.model.limits import Allowance, LimitView
from dalsegno.ports.clock import Clock


class MemoryLimits:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    async def set(self, key: str, rule: Allowance) -> None:
        self.store.limits.rules[key] = rule

    async def remove(self, key: str) -> bool:
        return self.store.limits.rules.pop(key, None) is not None

    async def get(self, key: str) -> LimitView:
        return self.store.limits.view(key, None, self.store, self.clock.now())

    async def page(self, after: str = "", limit: int = 100) -> list[LimitView]:
        keys = [key for key in self.store.limits.keys(self.store) if key > after]
        return [await self.get(key) for key in keys[:limit]]

    def on_opening(self, callback: Callable[[float], None]) -> None:
        self.store.limits.tell = callback
