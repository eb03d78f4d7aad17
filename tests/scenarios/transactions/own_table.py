"""The user's own table beside those of the store, and the tasks that write into it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from dalsegno import NodeContext
from dalsegno.model.failure import RetryPolicy
from tests.scenarios.stage import Stage

TABLE = "CREATE TABLE payment (name TEXT PRIMARY KEY, amount INTEGER NOT NULL)"
INSERT = "INSERT INTO payment (name, amount) VALUES ('{name}', {amount})"


class OwnTable:
    def __init__(self, stage: Stage, url: str) -> None:
        self.stage = stage
        self.url = url
        self.on_postgres = url.startswith("postgres")
        self.runs = 0
        self.then: Callable[[int], Awaitable[None]] | None = None
        """What a task does after its transaction."""
        self.execute("DROP TABLE IF EXISTS payment")
        self.execute(TABLE)
        stage.app.task(name="pay", retries=RetryPolicy(max_attempts=4, initial_delay=0))(
            self._pay_block if self.on_postgres else self._pay_work
        )

    async def _pay_block(self, ctx: NodeContext, name: str, amount: int) -> str:
        self.runs += 1
        async with ctx.transaction() as connection:
            await connection.execute(INSERT.format(name=name, amount=amount))
        if self.then is not None:
            await self.then(self.runs)
        return f"paid {name}"

    async def _pay_work(self, ctx: NodeContext, name: str, amount: int) -> str:
        self.runs += 1
        ctx.transaction(lambda connection: connection.execute(INSERT.format(name=name, amount=amount)))
        if self.then is not None:
            await self.then(self.runs)
        return f"paid {name}"

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        if self.on_postgres:
            return asyncio.run(fetch(self.url, statement))
        with sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30) as connection:
            return connection.execute(statement).fetchall()

    def paid(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT name, amount FROM payment ORDER BY name")


async def fetch(url: str, statement: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()
