"""Connections of callers, in whose own transactions executions are started.

This module owns three rules:

- A statement runs on the connection's own event loop; the rest of a start runs on the engine's.
- The connection must lead to the store's database.
- A task that breaks its transaction, so that no step can be committed in it, fails: a retry of the step alone
  would never succeed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

import asyncpg

from dalsegno.adapters.postgres.errors import UNREACHABLE, sqlstate_of
from dalsegno.adapters.postgres.psycopg_connections import (
    AsyncPsycopgConnection,
    PsycopgConnection,
    check_psycopg,
    is_psycopg,
)
from dalsegno.adapters.postgres.store import Connection, PostgresStore
from dalsegno.errors import UsageError
from dalsegno.ports.node import NodeError
from dalsegno.ports.transactions import CallerConnection

T = TypeVar("T")

ANSWERS_WITHIN = 5.0
"""Seconds for which the caller's event loop may be busy."""

PLACE = """
SELECT current_database()::text,
    (SELECT oid::text FROM pg_database WHERE datname = current_database()),
    has_function_privilege('pg_control_system()', 'EXECUTE')
"""
SERVER = "SELECT system_identifier::text FROM pg_control_system()"
"""The same for a server and its replicas. Run only if permitted: an error would end the caller's transaction."""


def check_form(connection: Any) -> None:
    if is_psycopg(connection):
        check_psycopg(connection)
        return
    if not isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        raise UsageError(
            f"a start in your own transaction takes a connection of asyncpg, psycopg 3, SQLAlchemy (with one of these) "
            f"or Django (with psycopg 3), not {type(connection).__module__}.{type(connection).__qualname__}"
        )
    if not connection.is_in_transaction():
        raise UsageError(
            "begin a transaction on the connection first: `async with connection.transaction():`"
        )


# -- event loops ----------------------------------------------------------------------------------------------


class ConnectionOfOtherLoop:
    """A connection that belongs to another event loop than the engine's: its statements run over there.

    Everything else of a start stays on the engine's loop, whose memory it uses.
    """

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop

    async def fetch(self, query: str, *parameters: object) -> Any:
        return await _run_on(self._loop, self._connection.fetch(query, *parameters))

    async def execute(self, query: str, *parameters: object) -> Any:
        return await _run_on(self._loop, self._connection.execute(query, *parameters))


async def usable_here(given: CallerConnection) -> Connection:
    """Return the connection, for statements from the running loop."""
    connection, loop = given.driver, given.loop
    if is_psycopg(connection):
        if loop is None:
            return PsycopgConnection(connection)
        connection = AsyncPsycopgConnection(connection)
    else:
        loop = connection._loop  # noqa: SLF001 - asyncpg does not tell it in any other way
    if loop is asyncio.get_running_loop():
        return connection
    await _expect_answer(loop)
    return ConnectionOfOtherLoop(connection, loop)


async def _expect_answer(loop: asyncio.AbstractEventLoop) -> None:
    """Refuse a plain ``start`` on the connection's own loop: it stops that loop, which the connection needs."""
    if loop.is_running():
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await _run_on(loop, asyncio.sleep(0))
            return
        except TimeoutError:
            pass
    raise UsageError(
        "the event loop that the connection belongs to does not run, or is blocked by this call: start with "
        "`await app.with_options(connection=connection).astart(…)` on that loop"
    )


async def _run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


# -- databases ------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """The database that a connection leads to."""

    database: str
    oid: str
    server: str | None
    """None: the user may not query it."""

    def is_same(self, other: Place) -> bool:
        if (self.database, self.oid) != (other.database, other.oid):
            return False
        return self.server is None or other.server is None or self.server == other.server


class SameDatabase:
    """Refuses connections to another database than the store's: the engine would not find the execution there.

    Each connection is checked once.
    """

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._known: WeakSet[Any] = WeakSet()

    async def expect(self, connection: Connection, usable: Connection) -> None:
        own = getattr(connection, "_con", connection)  # a pool hands out the same one under ever new proxies
        if own in self._known:
            return
        theirs = await _place(usable)
        async with self._store.look() as tx:
            ours = await _place(tx.connection)
        if not theirs.is_same(ours):
            raise UsageError(_other_database(theirs, ours))
        self._known.add(own)


async def _place(connection: Connection) -> Place:
    [(database, oid, may_ask)] = await connection.fetch(PLACE)
    if not may_ask:
        return Place(database, oid, None)
    [(server,)] = await connection.fetch(SERVER)
    return Place(database, oid, server)


def _other_database(theirs: Place, ours: Place) -> str:
    other = f"database '{theirs.database}'"
    if theirs.database == ours.database:
        other = f"another database '{theirs.database}', on another server, or created again"
    return (
        f"the connection leads to {other}, and the store is in '{ours.database}': an execution and your own rows are "
        "one transaction only in one database. Connect to that of the store, or start without `connection`"
    )


NEARLY_REACHED = 0.95
"""Share of the longest pause that counts as reached: the server's measurement differs slightly from the one here."""


def idle_too_long(limit: float) -> NodeError:
    return NodeError(
        f"the transaction of ctx.transaction() was ended by the server, and nothing of it is stored: there was no "
        f"statement for {limit:g} s. Do long work before the block, and return soon after it",
        code="TRANSACTION_IDLE",
    )


def aborted() -> NodeError:
    return NodeError(
        "a statement in the block of ctx.transaction() failed and its error was caught, but PostgreSQL executes "
        "nothing after that: nothing of the block is stored. Do not catch the error in the task, or put a "
        "statement that "
        "may fail into `async with connection.transaction():`, a savepoint, and catch it outside of that",
        code="TRANSACTION_ABORTED",
    )


def ended() -> NodeError:
    """Return the failure of a task that ended the transaction. Not retried: what was committed would be there twice."""
    return NodeError(
        "the task ended the transaction of ctx.transaction() itself, by COMMIT or ROLLBACK. Leave that to the step, "
        "which commits when the task has returned. What was committed is stored without the step, so the "
        "task is not run again: check what it wrote",
        code="TRANSACTION_ENDED",
        retryable=False,
    )


NOT_FROM_THE_TASK = frozenset(("08", "25", "40", "53", "57", "58", "XX"))
"""Error classes of a COMMIT that concern the connection, the server or its load. The task is not at fault."""
LOCK_NOT_AVAILABLE = "55P03"
"""Counts as a conflict with another transaction. Other codes of its class are about objects in a wrong state,
which a retry does not change.
"""


def fails_the_task(error: Exception) -> bool:
    """Return True if the error of a COMMIT concerns what the task wrote.

    Deferred constraints and triggers belong to the task's tables, since none of ours are deferred. An error that a
    trigger raises may have any code, also one that would concern the store in a statement of ours.
    """
    if not isinstance(error, asyncpg.PostgresError) or isinstance(error, UNREACHABLE):
        return False
    state = sqlstate_of(error)
    return state != LOCK_NOT_AVAILABLE and state[:2] not in NOT_FROM_THE_TASK


def at_commit(error: asyncpg.PostgresError) -> asyncpg.PostgresError:
    """Return the same error with a note that COMMIT raised it, not a line of the task."""
    message, *others = error.args or ("",)
    error.args = (f"at COMMIT: {message}", *others)
    return error


class Pauses:
    """Pauses between the statements on a connection, since the transaction began."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._last = time.monotonic()

    def note(self, statement: Any) -> None:
        """Record a statement; asyncpg calls this after each one, whether it failed or not."""
        now = time.monotonic()
        self._longest = max(self._longest, now - statement.elapsed - self._last)
        self._last = now

    def reached(self, limit: float) -> bool:
        """Return True if a pause was that long, or is."""
        return max(self._longest, time.monotonic() - self._last) >= limit * NEARLY_REACHED
