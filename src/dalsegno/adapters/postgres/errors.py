"""The one place where asyncpg's errors become ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

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

TURNED_AWAY = (
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
"""What a server says that is there."""

REFUSED_CLASSES = frozenset(("22", "23", "54"))
"""SQLSTATE classes about a value (data exception, constraint violation, program limit), not about the store."""

SETTING_CLASSES = frozenset(("22", "42"))
"""Those of what a server says about a setting with which a session is to begin."""

BY_STATE: dict[str, tuple[type[DalSegnoError], str]] = {
    "53100": (StoreFull, "no space left on the database's disk; nothing of this commit was applied"),
    "25006": (StoreReadOnly, "the database takes no writes: is it a standby, or its disk protected?"),
    "42501": (StoreReadOnly, "the database user may not do this: grant it the schema `dalsegno`"),
    "42P01": (SchemaMismatch, "a table is missing: open the store once with a user that may create it"),
    "42883": (SchemaMismatch, "a function is missing: open the store once with a user that may create it"),
    "25P03": (Unavailable, "this process stood still in a transaction, which the server has ended"),
    "3D000": (
        BadConfiguration,
        "there is no such database: create it, or name another one in the store's URL",
    ),
    "28P01": (
        BadConfiguration,
        "the password is wrong: it stands in the store's URL, in PGPASSWORD or in ~/.pgpass",
    ),
    "28000": (BadConfiguration, "the user may not connect: see its role, and pg_hba.conf of the server"),
    "40001": (Unavailable, "PostgreSQL has undone a transaction beside another one; it can be sent again"),
    "40P01": (
        Unavailable,
        "PostgreSQL has undone a transaction that stood in another's way; it can be sent again",
    ),
    "55000": (Unavailable, "PostgreSQL refuses this for now"),
    "55P03": (Unavailable, "others held for too long what a transaction needs; it can be sent again"),
    "57014": (Unavailable, "PostgreSQL has ended a statement: somebody cancelled it, or it took too long"),
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


@contextmanager
def connecting(url: str) -> Iterator[None]:
    """Around what makes the first connection, and nothing else: there the URL may be wrong."""
    try:
        yield
    except (asyncpg.PostgresError, *UNREACHABLE, ValueError) as error:
        raise _explain_connecting(error, url) from error


def _explain_connecting(error: Exception, url: str) -> DalSegnoError:
    if isinstance(error, ValueError):  # so are the driver's own complaints about a URL
        return BadConfiguration(_about_url(error, url))
    state = _state_of(error)
    if state == asyncpg.InsufficientPrivilegeError.sqlstate:
        return BadConfiguration(f"the user may not connect: grant it CONNECT on the database ({error})")
    if state[:2] in SETTING_CLASSES:
        return BadConfiguration(
            f"the server does not take a setting in the query of the store's URL ({error})"
        )
    if isinstance(error, UNREACHABLE) and not isinstance(error, TURNED_AWAY):
        return Unavailable(
            f"PostgreSQL{_place_of(url)} cannot be reached ({type(error).__name__}: {error}){_encoding(url)}"
        )
    return explain(error)


def _about_url(error: ValueError, url: str) -> str:
    """The driver repeats parts of the URL: where a password may have slipped into them, they are not shown."""
    if encoding := _encoding(url):
        return f"the store's URL cannot be read{encoding}"
    wrong = next((port for _, port in _servers_of(url) if port and not port.isdecimal()), None)
    if wrong is not None:
        return (
            f"the port {wrong!r} in the store's URL is no number; write postgresql://user@host:5432/database"
        )
    return f"the store's URL cannot be used: {error}"


def _place_of(url: str) -> str:
    """Where the server is looked for, as a part of a sentence."""
    if _encoding(url):
        return ""
    named = [f"{host}:{port}" if port else host for host, port in _servers_of(url)]
    return f" at {', '.join(named)}" if named else ""


def _servers_of(url: str) -> list[tuple[str, str]]:
    """Hosts and ports; the driver takes several."""
    places = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
    found = []
    for place in filter(None, places.split(",")):
        host, _, port = (place, "", "") if place.endswith("]") else place.rpartition(":")
        found.append((unquote(host), port) if host else (unquote(port), ""))
    return found


def _encoding(url: str) -> str:
    """Said of a URL whose password may hold characters that end it."""
    before_place, at, _ = url.partition("://")[2].rpartition("@")
    if not at or not any(sign in before_place for sign in "@/?#"):
        return ""
    return "; if its password holds @ / : ? # or %, write these as %40 %2F %3A %3F %23 %25"


def explain(error: Exception) -> DalSegnoError:
    """Any error of the driver as the error of whoever must act."""
    if isinstance(error, (asyncpg.DataError, UnicodeError, OverflowError)):
        return RefusedValue(f"the store cannot hold a value: {error}")
    if isinstance(error, UNREACHABLE):
        return _explain_absence(error)
    state = _state_of(error)
    if state[:2] in REFUSED_CLASSES:
        return RefusedValue(f"the store refuses a value: {error}")
    if state in BY_STATE:
        kind, cure = BY_STATE[state]
        return kind(f"{cure} ({error})")
    if state[:2] in ("40", "53", "55", "57"):
        return Unavailable(f"PostgreSQL is busy or short of something ({error})")
    return InternalError(f"unexpected error of PostgreSQL ({state}): {error}")


def _explain_absence(error: Exception) -> DalSegnoError:
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):
        return BadConfiguration(f"a pooler does not take a setting in the query of the store's URL ({error})")
    if isinstance(error, TURNED_AWAY):
        return Unavailable(f"PostgreSQL takes no connections now ({error})")
    return Unavailable(f"PostgreSQL cannot be reached ({type(error).__name__}: {error})")


def _state_of(error: Exception) -> str:
    return str(getattr(error, "sqlstate", None) or "")
