"""What a task can do to its transaction so that no step can be committed in it. All of it is the task's failure: if it
were only tried again, it would be for ever."""

from __future__ import annotations

import time
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.errors import UNREACHABLE, sqlstate_of
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


NOT_THE_TASKS = frozenset(("08", "25", "40", "53", "57", "58", "XX"))
"""Classes of what a COMMIT says about the connection, the server or its load. Nothing is wrong with the task."""
LOCK_NOT_AVAILABLE = "55P03"
"""As a conflict with another transaction. What else is of its class speaks of objects in a wrong state, which they are
in the next time as well."""


def fails_the_task(error: Exception) -> bool:
    """Whether what a COMMIT says is about what the task has written. Constraints and triggers that wait for the end are
    those of its tables, as none of ours waits; and what a trigger raises may have any code, also one that would speak
    of the store in a statement of ours."""
    if not isinstance(error, asyncpg.PostgresError) or isinstance(error, UNREACHABLE):
        return False
    state = sqlstate_of(error)
    return state != LOCK_NOT_AVAILABLE and state[:2] not in NOT_THE_TASKS


def at_commit(error: asyncpg.PostgresError) -> asyncpg.PostgresError:
    """The same error, which says when it came: no line of the task has raised it."""
    message, *others = error.args or ("",)
    error.args = (f"at COMMIT: {message}", *others)
    return error


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
