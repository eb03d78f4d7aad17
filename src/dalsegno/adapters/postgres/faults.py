"""What a task can do to its transaction so that no step can be committed in it. All of it is the task's failure: if it
were only tried again, it would be for ever."""

from __future__ import annotations

import time
from typing import Any

from dalsegno.ports.node import NodeError

NEARLY = 0.95
"""Of the longest pause: the server counts from a little before to a little after what is seen here."""


def overslept(limit: float) -> NodeError:
    return NodeError(
        f"the transaction of ctx.transaction() was ended by the server, and nothing of it is stored: there was no "
        f"statement for {limit:g} s. Do what takes long before the block, and return soon after it",
        code="TRANSACTION_IDLE",
    )


def aborted() -> NodeError:
    return NodeError(
        "a statement in the block of ctx.transaction() failed and its error was caught, but PostgreSQL goes on with "
        "nothing after that: nothing of the block is stored. Let the error out of the task, or put a statement that "
        "may fail into `async with connection.transaction():`, a savepoint, and catch it outside of that",
        code="TRANSACTION_ABORTED",
    )


def ended() -> NodeError:
    """Not tried again: what was committed would be there twice."""
    return NodeError(
        "the task ended the transaction of ctx.transaction() itself, by COMMIT or ROLLBACK. Leave that to the step, "
        "which commits when the task has returned. What was committed is stored without the step, so the task is not "
        "run again: look at what it wrote",
        code="TRANSACTION_ENDED",
        retryable=False,
    )


class Pauses:
    """Between the statements on a connection, since the transaction began."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._last = time.monotonic()

    def note(self, statement: Any) -> None:
        """asyncpg calls it after each statement, whether it failed or not."""
        now = time.monotonic()
        self._longest = max(self._longest, now - statement.elapsed - self._last)
        self._last = now

    def reached(self, limit: float) -> bool:
        """Whether one was so long, or is."""
        return max(self._longest, time.monotonic() - self._last) >= limit * NEARLY
