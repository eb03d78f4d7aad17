"""For tests of those who wait: what they wait for, and what happens meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.waiting import come_about

SOON = 11.0
"""Less than the 12 to 18 seconds after which a worker looks by itself."""
WAITS = """
SELECT EXISTS (
    SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE datname = current_database() AND locktype = 'relation' AND NOT granted
)
"""

Act = Callable[[], Awaitable[None]]


async def until(come: Callable[[], object], seconds: float = 60.0) -> None:
    await come_about(come, "what goes on meanwhile", seconds)


async def until_somebody_waits(watching: Any, seconds: float = 60.0) -> None:
    """For a table that another session has locked."""
    await come_about(lambda: watching.fetchval(WAITS), "somebody waits for a table", seconds)


async def nothing() -> None:
    pass


def act_beside(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    method: str,
    *,
    about: str | None = None,
    before: Act = nothing,
    after: Act = nothing,
) -> None:
    """Calls of a method, of a class or of one object, do something else, too: before they begin, or before they return.
    If it says what about, only those that are given this text."""
    call = getattr(owner, method)

    async def stand_in(*given: Any) -> Any:
        if about is not None and about not in given:
            return await call(*given)
        await before()
        result = await call(*given)
        await after()
        return result

    monkeypatch.setattr(owner, method, stand_in)
