"""Translation of asyncpg's errors: for each error code, who must act and the remedy.

A code is looked up as a whole, then by its class, its first two characters. An unknown code counts as the store's
fault: the work is kept and retried. Only an error about a value may fail the step that contains it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import asyncpg

from dalsegno.errors import (
    BadConfiguration,
    DalSegnoError,
    InvalidInput,
    SchemaMismatch,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)

Meaning = tuple[type[DalSegnoError], str]

REFUSED_CLASSES = frozenset(("21", "22", "23", "54"))
"""Errors of given rows: a duplicate within a batch, a value that no column can hold, a row that exists already or
lacks a value, a value beyond a limit of the server. No table here checks anything else.
"""

NO_SESSION = frozenset(("25006", "26000"))
"""The session is useless although its connection is open: its server has become a standby, or its prepared
statements were discarded.
"""

READ_ONLY = "25006"

SCHEMA_MISFIT = (
    "the tables do not match this program. If a newer version has migrated them, upgrade this program; else run "
    "`dalsegno migrate` with it"
)


def rights(user: str) -> str:
    """Return the grants needed to run workflows in tables of another owner."""
    return (
        f"GRANT USAGE ON SCHEMA dalsegno TO {user}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dalsegno TO {user}; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA dalsegno TO {user};"
    )


NO_RIGHT = (
    "the database user may not do this. To run workflows, grant it the schema `dalsegno` and its contents: "
    + rights("<user>")
    + " To migrate, and to make and drop partitions of history, it has to own the tables or be a member of the role"
    " that does (GRANT <owner> TO <user>;), and to install them it needs CREATE on the database"
)

BY_STATE: dict[str, Meaning] = {
    "25006": (
        StoreReadOnly,
        "the database accepts no writes: it is a standby or has become one, or its sessions are read-only by default",
    ),
    "25P03": (Unavailable, "this process was stalled in a transaction, which the server has ended"),
    "26000": (Unavailable, "the prepared statements of this session were discarded; the session is replaced"),
    "28000": (BadConfiguration, "the user may not connect: see its role, and pg_hba.conf of the server"),
    "28P01": (
        BadConfiguration,
        "the password is wrong: check it in the store's URL, in PGPASSWORD or in ~/.pgpass",
    ),
    "3D000": (
        BadConfiguration,
        "there is no such database: create it, or name another one in the store's URL",
    ),
    "40001": (
        Unavailable,
        "PostgreSQL has rolled back a transaction because of a concurrent one; it can be sent again",
    ),
    "40P01": (
        Unavailable,
        "PostgreSQL has rolled back a transaction to end a deadlock; it can be sent again",
    ),
    "42501": (StoreReadOnly, NO_RIGHT),
    "42P01": (SchemaMismatch, f"a table is missing: {SCHEMA_MISFIT}, as a user that may create it"),
    "42883": (SchemaMismatch, f"a function is missing: {SCHEMA_MISFIT}, as a user that may create it"),
    "53100": (StoreFull, "no space left on the database's disk; nothing of this commit was applied"),
    "55000": (Unavailable, "PostgreSQL refuses this temporarily"),
    "55P03": (Unavailable, "a lock that a transaction needs was not free in time; it can be sent again"),
    "57014": (Unavailable, "PostgreSQL has cancelled a statement: on request, or because it took too long"),
    "XX001": (StoreCorrupt, "the database reports damaged data; restore a backup"),
    "XX002": (StoreCorrupt, "the database reports a damaged index; REINDEX, or restore a backup"),
}

_BUSY: Meaning = (Unavailable, "PostgreSQL is busy or short of a resource")

BY_CLASS: dict[str, Meaning] = {
    "0A": (Unavailable, "PostgreSQL rejects this statement now, as after a change of its tables"),
    "25": (
        Unavailable,
        "the transaction has failed or ended, and PostgreSQL executes nothing more in it; begin another one",
    ),
    "26": (Unavailable, "a prepared statement does not exist any longer; it is prepared again"),
    "3F": (
        SchemaMismatch,
        f"the schema `dalsegno` is missing: {SCHEMA_MISFIT}, as a user that may create it",
    ),
    "40": _BUSY,
    "42": (SchemaMismatch, SCHEMA_MISFIT),
    "53": _BUSY,
    "55": _BUSY,
    "57": _BUSY,
    "58": (
        Unavailable,
        "PostgreSQL cannot read or write its files: see the disk of its machine, and its log",
    ),
    "XX": (Unavailable, "PostgreSQL reports an internal error: see its log"),
}

UNKNOWN: Meaning = (Unavailable, "PostgreSQL reports an unexpected error: see its log")


def meaning_of(state: str) -> Meaning:
    """Return the meaning of a code outside of ``REFUSED_CLASSES``."""
    return BY_STATE.get(state) or BY_CLASS.get(state[:2]) or UNKNOWN


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
"""The server is unreachable, shutting down or full; asyncpg raises the last two on a connection that died."""

LOGIN_REFUSED = (
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
"""Errors that a reachable server reports."""

ANSWERED = (*LOGIN_REFUSED, asyncpg.TargetServerAttributeNotMatched)
"""Errors that show that a server was reached."""

SETTING_CLASSES = frozenset(("22", "42"))
"""Error classes of a setting with which a session begins."""


LOGIN_CLASSES = frozenset(("28", "3D"))
"""Error classes of a refused login."""

LOST = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The driver's error for a connection that died under it is about the driver's internals."""

SESSION_ATTRIBUTES = ("any", "primary", "standby", "prefer-standby", "read-write", "read-only")
"""The values of ``target_session_attrs``."""


@contextmanager
def driver_errors() -> Iterator[None]:
    """Translate driver errors; every use of the driver is inside this."""
    try:
        yield
    except (asyncpg.PostgresError, *UNREACHABLE, UnicodeError, OverflowError) as error:
        raise _explain_using(error) from error


def _explain_using(error: Exception) -> DalSegnoError:
    """Return the error of a store that was open before, so that its URL was right.

    If it refuses logins now, as after a change of the password, it counts as unavailable to this process: a step
    that could not read is handed back, and an operation on the store does not count as unsupported by this
    process.
    """
    explained = explain(error)
    if isinstance(explained, BadConfiguration) and sqlstate_of(error)[:2] in LOGIN_CLASSES:
        return Unavailable(f"PostgreSQL no longer accepts this process: {explained}")
    return explained


@contextmanager
def connecting(url: str) -> Iterator[None]:
    """Translate errors of the first connection, and of nothing else: only there may the URL be wrong."""
    try:
        yield
    except (asyncpg.PostgresError, *UNREACHABLE, ValueError) as error:
        raise _explain_connecting(error, url) from error


def _explain_connecting(error: Exception, url: str) -> DalSegnoError:
    if isinstance(error, ValueError):  # the driver reports errors of a URL this way, too
        return BadConfiguration(_about_url(error, url))
    state = sqlstate_of(error)
    if state == asyncpg.InsufficientPrivilegeError.sqlstate:
        return BadConfiguration(f"the user may not connect: grant it CONNECT on the database ({error})")
    if isinstance(error, asyncpg.InvalidPasswordError) and not _may_have_password(url):
        return BadConfiguration(
            "the server asks for a password, and none was given: put it into the store's URL, into PGPASSWORD or into "
            f"~/.pgpass (SQLSTATE {state}: {error})"
        )
    if state[:2] in SETTING_CLASSES:
        return BadConfiguration(f"the server rejects a setting in the query of the store's URL ({error})")
    if isinstance(error, ConnectionError) and "rejected SSL" in str(error):
        return BadConfiguration(
            f"PostgreSQL{_place_of(url)} does not speak SSL, which `sslmode` in the store's URL (or "
            f"PGSSLMODE) requires: enable it in the server, or write `sslmode=disable`"
        )
    if isinstance(error, UNREACHABLE) and not isinstance(error, ANSWERED):
        return Unavailable(f"PostgreSQL{_place_of(url)} cannot be reached ({_reason(error)}){_encoding(url)}")
    return explain(error)


def _about_url(error: ValueError, url: str) -> str:
    """Return the message about a URL.

    The driver repeats parts of it, which are left out if they may contain a password.
    """
    if encoding := _encoding(url):
        return f"the store's URL cannot be read{encoding}"
    wrong = next((port for _, port in _servers_of(url) if port and not port.isdecimal()), None)
    if wrong is not None:
        return f"the port {wrong!r} in the store's URL is not a number; write postgresql://user@host:5432/database"
    if "target_session_attrs is expected" in str(error):  # the driver does not list them
        return f"`target_session_attrs` in the store's URL is none of {', '.join(SESSION_ATTRIBUTES)}"
    return f"the store's URL cannot be used: {error}"


def _may_have_password(url: str) -> bool:
    """Return True if a password is in one of the places where the driver looks for it.

    The content of files is not checked.
    """
    user, at, _ = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")
    file = Path(os.environ.get("PGPASSFILE") or Path("~/.pgpass").expanduser())
    in_url = (at and ":" in user) or re.search(r"[?&](password|passfile|service)=", url)
    return bool(in_url or os.environ.get("PGPASSWORD") or file.exists())


def _place_of(url: str) -> str:
    """Return the server's location, as a part of a sentence."""
    if _encoding(url):
        return ""
    named = [f"{host}:{port}" if port else host for host, port in _servers_of(url)]
    return f" at {', '.join(named)}" if named else ""


def _servers_of(url: str) -> list[tuple[str, str]]:
    """Return hosts and ports; the driver takes several."""
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
    """Translate an error of the driver into the error of the person who must act."""
    if isinstance(error, (asyncpg.DataError, UnicodeError, OverflowError)):
        return RefusedValue(f"the store cannot hold a value: {error}")
    if isinstance(error, UNREACHABLE):
        return _explain_absence(error)
    state = sqlstate_of(error)
    if state[:2] in REFUSED_CLASSES:
        return RefusedValue(f"the store refuses a value: {error}")
    kind, cure = meaning_of(state)
    return kind(f"{cure} (SQLSTATE {state}: {error})")


def _explain_absence(error: Exception) -> DalSegnoError:
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):
        return BadConfiguration(f"a pooler rejects a setting in the query of the store's URL ({error})")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return Unavailable(
            "none of the servers in the store's URL meets `target_session_attrs`: promote one, or wait "
            "until one is promoted"
        )
    if isinstance(error, LOGIN_REFUSED):
        return Unavailable(f"PostgreSQL accepts no connections now ({error})")
    if isinstance(error, LOST):
        return Unavailable(f"PostgreSQL cannot be reached: the connection was lost ({_reason(error)})")
    return Unavailable(f"PostgreSQL cannot be reached ({_reason(error)})")


def _reason(error: Exception) -> str:
    """Return the reason; a timeout has no message of its own."""
    text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "no reason is given")
    return f"{type(error).__name__}: {text}"


def sqlstate_of(error: BaseException | None) -> str:
    """Return the code of a driver error, or of the driver error that caused one of ours; empty if there is none."""
    while error is not None:
        if state := getattr(error, "sqlstate", None):
            return str(state)
        error = error.__cause__
    return ""
