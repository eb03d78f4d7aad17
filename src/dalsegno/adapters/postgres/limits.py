"""PostgresLimits: the operators' rules for keys, and the keys' current use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dalsegno.adapters.limit_lines import COUNTED
from dalsegno.adapters.postgres.claim.limited import read_starts, read_uses
from dalsegno.adapters.postgres.store import PostgresStore, Transaction
from dalsegno.adapters.rows import rule_columns
from dalsegno.core.settlement.limits import limit_view
from dalsegno.model.limits import Allowance, LimitView


async def views_of(tx: Transaction, asked: Sequence[tuple[str, str | None]], now: float) -> list[LimitView]:
    """Return keys as seen by tokens with these allowances."""
    if not asked:
        return []
    keys = list({key for key, _ in asked})
    waiting = dict(await tx.fetch("limits.waiting", keys, COUNTED))
    uses = await read_uses(tx, keys, now)
    await read_starts(tx, uses, asked, 1)
    views = []
    for key, own in asked:
        use = uses[key]
        views.append(limit_view(key, own, use.rule, use.slots, waiting[key], use.nth_start, now))
    return views


class PostgresLimits:
    """Rules apply from the next claim on, in every process: claims read them in their own transaction."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store

    async def set(self, key: str, rule: Allowance) -> None:
        async with self.store.transaction() as tx:
            await tx.fetch("limits.lock", [key])
            await tx.fetch("limits.set_rule", key, *rule_columns(rule), self.store.now())
            await tx.fetch("limits.open", [key])

    async def remove(self, key: str) -> bool:
        async with self.store.transaction() as tx:
            await tx.fetch("limits.lock", [key])
            removed = await tx.fetch("limits.remove_rule", key)
            await tx.fetch("limits.open", [key])
        return bool(removed)

    async def get(self, key: str) -> LimitView:
        async with self.store.look() as tx:
            [view] = await views_of(tx, [(key, None)], self.store.now())
        return view

    async def page(self, after: str = "", limit: int = 100) -> list[LimitView]:
        async with self.store.look() as tx:
            keys = [key for (key,) in await tx.fetch("limits.keys", after, limit)]
            return await views_of(tx, [(key, None) for key in keys], self.store.now())

    def on_opening(self, callback: Callable[[float], None]) -> None:
        self.store.announce_opening = callback
