"""Connections of callers, in whose own transactions executions are started."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

import asyncpg

from dalsegno.adapters.postgres.psycopg_callers import (
    AsyncPsycopgConnection,
    PsycopgConnection,
    check_psycopg,
    is_psycopg,
)
from dalsegno.adapters.postgres.store import Connection, PostgresStore
from dalsegno.errors import UsageError
from dalsegno.ports.transactions import CallerConnection

T = TypeVar("T")

ANSWERS_WITHIN = 5.0
"""Seconds for which the caller's event loop may be busy with something else."""

PLACE = """
SELECT current_database()::text,
    (SELECT oid::text FROM pg_database WHERE datname = current_database()),
    has_function_privilege('pg_control_system()', 'EXECUTE')
"""
SERVER = "SELECT system_identifier::text FROM pg_control_system()"
"""The same for a server and its replicas. Asked only where that is allowed: an error would end the caller's
transaction."""


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


class ConnectionElsewhere:
    """One that belongs to another event loop than the engine's: its statements run over there. All else of a start
    stays on the engine's loop, whose memory it uses."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop

    async def fetch(self, query: str, *parameters: object) -> Any:
        return await _run_on(self._loop, self._connection.fetch(query, *parameters))

    async def execute(self, query: str, *parameters: object) -> Any:
        return await _run_on(self._loop, self._connection.execute(query, *parameters))


async def usable_here(given: CallerConnection) -> Connection:
    """The connection, for statements from the loop that runs here."""
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
    return ConnectionElsewhere(connection, loop)


async def _expect_answer(loop: asyncio.AbstractEventLoop) -> None:
    """A plain ``start`` on the connection's own loop stops that loop, which the connection needs."""
    if loop.is_running():
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await _run_on(loop, asyncio.sleep(0))
            return
        except TimeoutError:
            pass
    raise UsageError(
        "the event loop that the connection belongs to does not run, or is blocked by this very call: start with "
        "`await app.with_options(connection=connection).astart(…)` on that loop"
    )


async def _run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


# -- databases ------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a connection leads to."""

    database: str
    oid: str
    server: str | None
    """None: the user may not ask for it."""

    def is_same(self, other: Place) -> bool:
        if (self.database, self.oid) != (other.database, other.oid):
            return False
        return self.server is None or other.server is None or self.server == other.server


class SameDatabase:
    """An execution that is started in a database other than the store's would be found by nobody. Each connection is
    asked once."""

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
        other = f"another database '{theirs.database}', on another server or made anew"
    return (
        f"the connection leads to {other}, and the store is in '{ours.database}': an execution and your own rows are "
        "one transaction only in one database. Connect to that of the store, or start without `connection`"
    )
