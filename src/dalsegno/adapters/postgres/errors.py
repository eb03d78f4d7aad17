"""The one place where asyncpg's errors become ours."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import asyncpg

from dalsegno.adapters.postgres.sqlstates import REFUSED_CLASSES, meaning_of
from dalsegno.errors import BadConfiguration, DalSegnoError, InvalidInput, Unavailable


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

ANSWERED = (*TURNED_AWAY, asyncpg.TargetServerAttributeNotMatched)
"""What is said of servers that were reached."""

SETTING_CLASSES = frozenset(("22", "42"))
"""Those of what a server says about a setting with which a session is to begin."""


LOGIN_CLASSES = frozenset(("28", "3D"))
"""Those of what a server says to whoever it does not let in."""

LOST = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver says of a connection that died under it speaks of its own insides."""

SESSION_ATTRIBUTES = ("any", "primary", "standby", "prefer-standby", "read-write", "read-only")
"""What ``target_session_attrs`` may be."""


@contextmanager
def driver_errors() -> Iterator[None]:
    """Everything that talks to the driver does so inside this."""
    try:
        yield
    except (asyncpg.PostgresError, *UNREACHABLE, UnicodeError, OverflowError) as error:
        raise _explain_using(error) from error


def _explain_using(error: Exception) -> DalSegnoError:
    """Of a store that was open before, so its URL was right. If it lets nobody in any more, as after a change of the
    password, it is away for this process, and that is all: a step that could not read is handed back, and nothing that
    was to be done with the store counts as what this process cannot do."""
    told = explain(error)
    if isinstance(told, BadConfiguration) and sqlstate_of(error)[:2] in LOGIN_CLASSES:
        return Unavailable(f"PostgreSQL lets this process in no more: {told}")
    return told


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
    state = sqlstate_of(error)
    if state == asyncpg.InsufficientPrivilegeError.sqlstate:
        return BadConfiguration(f"the user may not connect: grant it CONNECT on the database ({error})")
    if isinstance(error, asyncpg.InvalidPasswordError) and not _may_have_password(url):
        return BadConfiguration(
            "the server asks for a password, and none was given: put it into the store's URL, into PGPASSWORD or into "
            f"~/.pgpass (SQLSTATE {state}: {error})"
        )
    if state[:2] in SETTING_CLASSES:
        return BadConfiguration(
            f"the server does not take a setting in the query of the store's URL ({error})"
        )
    if isinstance(error, ConnectionError) and "rejected SSL" in str(error):
        return BadConfiguration(
            f"PostgreSQL{_place_of(url)} does not speak SSL, which `sslmode` in the store's URL (or PGSSLMODE) "
            "asks for: switch it on in the server, or write `sslmode=disable`"
        )
    if isinstance(error, UNREACHABLE) and not isinstance(error, ANSWERED):
        return Unavailable(f"PostgreSQL{_place_of(url)} cannot be reached ({_reason(error)}){_encoding(url)}")
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
    if "target_session_attrs is expected" in str(error):  # the driver does not name them
        return f"`target_session_attrs` in the store's URL is none of {', '.join(SESSION_ATTRIBUTES)}"
    return f"the store's URL cannot be used: {error}"


def _may_have_password(url: str) -> bool:
    """In one of the places where the driver looks for it. What a file holds is not looked at."""
    user, at, _ = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")
    file = Path(os.environ.get("PGPASSFILE") or Path("~/.pgpass").expanduser())
    in_url = (at and ":" in user) or re.search(r"[?&](password|passfile|service)=", url)
    return bool(in_url or os.environ.get("PGPASSWORD") or file.exists())


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
    state = sqlstate_of(error)
    if state[:2] in REFUSED_CLASSES:
        return RefusedValue(f"the store refuses a value: {error}")
    kind, cure = meaning_of(state)
    return kind(f"{cure} (SQLSTATE {state}: {error})")


def _explain_absence(error: Exception) -> DalSegnoError:
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):
        return BadConfiguration(f"a pooler does not take a setting in the query of the store's URL ({error})")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return Unavailable(
            "of the servers in the store's URL none is what `target_session_attrs` asks for: promote one, or wait "
            "until whoever does so has done it"
        )
    if isinstance(error, TURNED_AWAY):
        return Unavailable(f"PostgreSQL takes no connections now ({error})")
    if isinstance(error, LOST):
        return Unavailable(f"PostgreSQL cannot be reached: the connection was lost ({_reason(error)})")
    return Unavailable(f"PostgreSQL cannot be reached ({_reason(error)})")


def _reason(error: Exception) -> str:
    """A time that has run out says nothing of itself."""
    text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "no reason is given")
    return f"{type(error).__name__}: {text}"


def sqlstate_of(error: BaseException | None) -> str:
    """The code of an error of the driver, or of the one that an error of ours comes from; empty if there is none."""
    while error is not None:
        if state := getattr(error, "sqlstate", None):
            return str(state)
        error = error.__cause__
    return ""
