"""SqliteLimits: the operators' rules for keys, and the keys' current use."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from dalsegno.adapters.limit_lines import COUNTED
from dalsegno.adapters.rows import allowance, rule_columns
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.core.settlement.limits import NthStart, limit_view
from dalsegno.model.limits import UNBOUNDED, Allowance, LimitView, Rate


def rule_of(connection: sqlite3.Connection, key: str) -> Allowance:
    row = connection.execute(SQL["limits.rule"], (key,)).fetchone()
    if row is None:
        return UNBOUNDED
    return allowance(*row)


def in_use(connection: sqlite3.Connection, key: str) -> int:
    (count,) = connection.execute(SQL["limits.in_use"], {"key": key}).fetchone()
    return int(count)


def nth_start(connection: sqlite3.Connection, key: str) -> NthStart:
    def look(n: int) -> float | None:
        (last,) = connection.execute(SQL["limits.last_start"], (key,)).fetchone()
        if last is None:
            return None
        row = connection.execute(SQL["limits.start_at"], (key, last - n + 1)).fetchone()
        return float(row[0]) if row is not None else None

    return look


def note_start(connection: sqlite3.Connection, key: str, rate: Rate, now: float) -> None:
    (last,) = connection.execute(SQL["limits.last_start"], (key,)).fetchone()
    number = (last or 0) + 1
    connection.execute(SQL["limits.note_start"], (key, number, now, now + rate.period))
    connection.execute(SQL["limits.forget_starts"], (key, number - rate.starts))


def view_of(connection: sqlite3.Connection, key: str, own: str | None, now: float) -> LimitView:
    (waiting,) = connection.execute(SQL["limits.waiting"], (key, COUNTED)).fetchone()
    rule, used = rule_of(connection, key), in_use(connection, key)
    return limit_view(key, own, rule, used, waiting, nth_start(connection, key), now)


class SqliteLimits:
    """Rules apply from the next claim on, in every process: claims read them in their own transaction."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    async def set(self, key: str, rule: Allowance) -> None:
        row = (key, *rule_columns(rule), self.store.clock.now())
        await self._change(key, "limits.set_rule", row)

    async def remove(self, key: str) -> bool:
        return await self._change(key, "limits.remove_rule", (key,))

    async def _change(self, key: str, statement: str, parameters: tuple[Any, ...]) -> bool:
        def change(connection: sqlite3.Connection) -> bool:
            changed = connection.execute(SQL[statement], parameters).rowcount > 0
            connection.execute(SQL["limits.open"], (key,))
            return changed

        return await self.store.write(lambda rows: change(rows.connection))

    async def get(self, key: str) -> LimitView:
        now = self.store.clock.now()
        return await self.store.read(lambda connection: view_of(connection, key, None, now))

    async def page(self, after: str = "", limit: int = 100) -> list[LimitView]:
        now = self.store.clock.now()

        def look(connection: sqlite3.Connection) -> list[LimitView]:
            keys = connection.execute(SQL["limits.keys"], {"after": after, "limit": limit}).fetchall()
            return [view_of(connection, key, None, now) for (key,) in keys]

        return await self.store.read(look)

    def on_opening(self, callback: Callable[[float], None]) -> None:
        self.store.announce_opening = callback
