"""Callers' connections to the database of the store: the driver connections behind those of SQLAlchemy and Django.
These packages are not imported here: a caller that passes a connection has imported its package.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from dalsegno.errors import UsageError
from dalsegno.ports.transactions import CallerConnection

AWAIT = (
    "this connection is for async code: start with `await app.with_options(connection=connection).astart(…)`"
)


def plain_connection(given: Any) -> CallerConnection:
    """Return the connection for a start from synchronous code, in the caller's thread. Raises UsageError."""
    if _is(given, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session"):
        raise UsageError(AWAIT)
    if _is(given, "psycopg", "AsyncConnection"):
        raise UsageError(AWAIT)
    if _is(given, "sqlalchemy.orm", "Session", "scoped_session"):
        given = given.connection()
    if _is(given, "sqlalchemy.engine", "Connection"):
        _expect_transaction(given)
        return CallerConnection(given.connection.driver_connection, begins_late=True)
    wrapper = _of_django(given)
    if wrapper is not None:
        return _behind_django(wrapper)
    return CallerConnection(given)


async def async_connection(given: Any) -> CallerConnection:
    """Return the connection for a start from async code, on the loop that the connection belongs to. Raises
    UsageError.
    """
    if _is(given, "sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session"):
        given = await given.connection()
    if _is(given, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        _expect_transaction(given)
        # Begins the transaction, which SQLAlchemy does with the first statement.
        await given.exec_driver_sql("SELECT 1")
        raw = await given.get_raw_connection()
        return CallerConnection(raw.driver_connection, asyncio.get_running_loop())
    if _is(given, "psycopg", "AsyncConnection"):
        return CallerConnection(given, asyncio.get_running_loop())
    return plain_connection(given)


def _expect_transaction(connection: Any) -> None:
    if not connection.in_transaction():
        raise UsageError(
            "begin a transaction of SQLAlchemy first: `with engine.begin() as connection:`, or its async form"
        )


def _of_django(given: Any) -> Any:
    """Return the wrapper of one database; ``django.db.connection`` is a proxy of it."""
    if _is(given, "django.utils.connection", "ConnectionProxy"):
        return sys.modules["django.db"].connections[given.alias]
    return given if _is(given, "django.db.backends.base.base", "BaseDatabaseWrapper") else None


def _behind_django(wrapper: Any) -> CallerConnection:
    if not wrapper.in_atomic_block:
        raise UsageError("begin a transaction of Django first: `with transaction.atomic():`")
    wrapper.ensure_connection()
    return CallerConnection(wrapper.connection)


def _is(given: Any, module: str, *names: str) -> bool:
    """Return True if it is an instance of one of these classes. The module is only looked up, never imported."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(given, tuple(getattr(loaded, name) for name in names))
