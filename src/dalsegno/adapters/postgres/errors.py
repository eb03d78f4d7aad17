"""The one place where asyncpg's errors become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from dalsegno.errors import (
    BadConfiguration,
    DalSegnoError,
    InternalError,
    InvalidInput,
    SchemaMismatch,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)


class RefusedValue(InvalidInput):
    """The store cannot hold a value that was given to it."""


UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""The server is away, going or full of others; the last two are what asyncpg raises on a connection that died."""

REFUSED_CLASSES = frozenset(("22", "23", "54"))
"""SQLSTATE classes about a value (data exception, constraint violation, program limit), not about the store."""

BY_STATE: dict[str, tuple[type[DalSegnoError], str]] = {
    "53100": (StoreFull, "no space left on the database's disk; nothing of this commit was applied"),
    "25006": (StoreReadOnly, "the database takes no writes: is it a standby, or its disk protected?"),
    "42501": (StoreReadOnly, "the database user may not do this: grant it the schema `dalsegno`"),
    "42P01": (SchemaMismatch, "a table is missing: open the store once with a user that may create it"),
    "42883": (SchemaMismatch, "a function is missing: open the store once with a user that may create it"),
    "25P03": (Unavailable, "this process stood still in a transaction, which the server has ended"),
    "3D000": (BadConfiguration, "there is no such database"),
    "28P01": (BadConfiguration, "the password is wrong"),
    "28000": (BadConfiguration, "the user may not connect"),
    "XX001": (StoreCorrupt, "the database reports damaged data; restore a backup"),
    "XX002": (StoreCorrupt, "the database reports a damaged index; REINDEX, or restore a backup"),
}


@contextmanager
def driver_errors() -> Iterator[None]:
    """Everything that talks to the driver does so inside this."""
    try:
        yield
    except (asyncpg.PostgresError, *UNREACHABLE, UnicodeError, OverflowError) as error:
        raise explain(error) from error


def explain(error: Exception) -> DalSegnoError:
    """Any error of the driver as the error of whoever must act."""
    if isinstance(error, (asyncpg.DataError, UnicodeError, OverflowError)):
        return RefusedValue(f"the store cannot hold a value: {error}")
    if isinstance(error, UNREACHABLE):
        return Unavailable(f"PostgreSQL cannot be reached or is busy ({type(error).__name__}: {error})")
    state = str(getattr(error, "sqlstate", None) or "")
    if state[:2] in REFUSED_CLASSES:
        return RefusedValue(f"the store refuses a value: {error}")
    if state in BY_STATE:
        kind, cure = BY_STATE[state]
        return kind(f"{cure} ({error})")
    if state[:2] in ("40", "53", "55", "57"):
        return Unavailable(f"PostgreSQL is busy ({error}); the commit can be sent again")
    return InternalError(f"unexpected error of PostgreSQL ({state}): {error}")
