"""One question to a PostgreSQL database, from where no event loop runs."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg


def ask(url: str, statement: str) -> list[Any]:
    """The first column of all rows."""

    async def asked() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return [row[0] for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return asyncio.run(asked())
