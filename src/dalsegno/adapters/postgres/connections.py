"""Connections to PostgreSQL: their names, several servers, replaced sessions, poolers.

- Names: connections show in ``pg_stat_activity`` as ``dalsegno/1.2.3 listener web-1:4711``. That is the version,
  the purpose of a connection other than the store's own, and the ``application_name`` of the store's URL, or else
  the host and the process. PostgreSQL shows the first 63 bytes.
- Several servers: the driver gives all servers of a URL one time limit together, so that a server that does not
  answer uses it up and the others are never tried. Here each one gets a limit of its own.
- Replaced sessions: if one session has become useless, all are replaced, because the others share the cause. The
  next connection is made by the store's URL again. If it names several servers and selects one with
  ``target_session_attrs``, this is how a process finds the new primary.
- Modes: direct to PostgreSQL, or through a pooler that gives each transaction another session. Statements rely on a
  few settings. A direct session gets them at its start. A pooler refuses or ignores that, and settings of its sessions
  would remain for other clients: then each transaction sets them for itself, a single statement is a transaction, too,
  and none is prepared under a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import time
from secrets import token_hex
from typing import Any, Literal
from urllib.parse import parse_qs

import asyncpg
from msgspec import Struct

from dalsegno.adapters.postgres.errors import NO_SESSION, READ_ONLY, sqlstate_of
from dalsegno.ports.ledger import ConnectedProcess
from dalsegno.version import __version__

Purpose = Literal["", "listener", "task"]

OURS = re.compile(r"dalsegno(?:/(?P<version>\S+))?(?: (?:listener|task))?(?: (?P<whose>.+))?")
WITHOUT_VERSION = ("dalsegno", "dalsegno listener", "dalsegno task")
"""Names given by versions that did not include their version."""
CONNECTED = """
SELECT DISTINCT application_name, host(client_addr)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (application_name LIKE 'dalsegno/%' OR application_name = ANY($1))
ORDER BY 1, 2
"""
"""Every role sees the names of all sessions. Addresses are shown to the same role, or a role that may see all."""


def name_of(url: str, purpose: Purpose = "") -> str:
    """Return the name of a connection made by this URL."""
    return " ".join(filter(None, (f"dalsegno/{__version__}", purpose, _given_by(url) or _this_process())))


def process_of(name: str, address: str | None) -> ConnectedProcess:
    """Return the process to which a connection of this name belongs."""
    found = OURS.fullmatch(name)
    version, process = (found["version"], found["whose"]) if found else (None, None)
    return ConnectedProcess(process or "", version, address)


def _given_by(url: str) -> str:
    return parse_qs(url.partition("?")[2].partition("#")[0]).get("application_name", [""])[-1].strip()


def _this_process() -> str:
    """Return this process's name, as in the names of workers."""
    return f"{socket.gethostname()}:{os.getpid()}"


logger = logging.getLogger("dalsegno.postgres")

REMIND_AFTER = 30.0
"""Seconds between two log lines about a missing primary: steps in progress retry all the time."""


class ConnectionRecycler:
    """Recycles the connections in the pools of a store."""

    def __init__(self, pool: Any) -> None:
        self._pools = [pool]
        self._logged_at: float | None = None

    def add(self, pool: Any) -> None:
        """Add another pool whose sessions become useless together with those of the first."""
        self._pools.append(pool)

    async def after(self, error: Exception) -> None:
        """Expire all open sessions if the error says that one is useless."""
        state = sqlstate_of(error)
        if state in NO_SESSION:
            for pool in self._pools:
                await pool.expire_connections()
            if state == READ_ONLY:
                self._log_no_primary(error)

    def _log_no_primary(self, error: Exception) -> None:
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at < REMIND_AFTER:
            return
        self._logged_at = now
        logger.warning(
            "PostgreSQL accepts no writes (%s): it is a standby, or has become one. Its connections are closed and "
            "the primary is searched for. Name all servers in the store's URL, with target_session_attrs=read-write",
            error,
        )


SECONDS_PER_SERVER = 5.0
"""Seconds within which a server has to answer while there is another one to try."""
TRY_THE_NEXT = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)
"""The server is unreachable, starting, or not one that ``target_session_attrs`` selects; any other error is raised
at once, as by the driver.
"""
PLACES = re.compile(r"(?P<before>[^:]+://(?:[^/?#]*@)?)(?P<places>[^/?#@]*)(?P<after>.*)", re.DOTALL)


async def connect(url: str, *, timeout: float = 60.0, **options: Any) -> Any:  # noqa: ASYNC109 - as the driver's
    """Connect as ``asyncpg.connect`` does. ``timeout`` is for all servers together."""
    clock = asyncio.get_running_loop().time
    until = clock() + timeout
    *others, last = one_by_one(url)
    mismatch: Exception | None = None
    unreachable: Exception | None = None
    for number, other in enumerate(others):
        share = (until - clock()) / (len(others) + 1 - number)
        try:
            return await asyncpg.connect(other, timeout=min(share, SECONDS_PER_SERVER), **options)
        except asyncpg.TargetServerAttributeNotMatched as error:
            mismatch = error
        except TRY_THE_NEXT as error:
            unreachable = error
    try:
        return await asyncpg.connect(last, timeout=max(until - clock(), 0.0), **options)
    except asyncpg.TargetServerAttributeNotMatched:
        if unreachable is not None:
            raise unreachable from mismatch  # it may be the one that is meant
        raise


def one_by_one(url: str) -> list[str]:
    """Return one URL for each of its servers.

    A preferred standby requires comparing all servers, so the driver gets the URL whole; likewise if the servers
    are in the URL's query.
    """
    found = PLACES.fullmatch(url)
    if found is None or "prefer-standby" in found["after"]:
        return [url]
    places = found["places"].split(",")
    return [found["before"] + place + found["after"] for place in places] if all(places) else [url]


# -- modes: direct, or through a pooler ------------------------------------------------------------------------


SESSION = {
    "search_path": "dalsegno",
    "jit": "off",  # compiling costs more than any statement here takes
    # Every statement here uses an index. Statistics of tables that fill and drain faster than they are analysed must
    # not lead the planner to anything else, and a plan once made is kept.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
SET_LOCAL = "".join(f"; SET LOCAL {name} = {value}" for name, value in SESSION.items())
BEGIN_ALONE = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'" + SET_LOCAL
CONNECT_SECONDS = 30.0
MARK = "dalsegno.session"


class PlainConnection(asyncpg.Connection):  # type: ignore[misc]
    """Leaves no state in a session, so a connection returns to the pool without a reset."""

    def get_reset_query(self) -> str:
        return ""


class PooledConnection(PlainConnection):
    """Applies the settings at the beginning of every transaction."""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - asyncpg's
        if query.startswith("BEGIN"):
            query = query.rstrip("; ") + SET_LOCAL
        elif args and not self.is_in_transaction():
            await self.fetch(query, *args, timeout=timeout)
            return ""
        return await super().execute(query, *args, timeout=timeout)

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        if self.is_in_transaction():
            return await super().fetch(query, *args, **options)
        await super().execute(BEGIN_ALONE)
        try:
            rows = await super().fetch(query, *args, **options)
        except BaseException:
            if not self.is_closed():
                with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                    await super().execute("ROLLBACK")  # the original error is the one to report
            raise
        await super().execute("COMMIT")
        return rows


class ConnectionMode(Struct, frozen=True):
    """The connection options for asyncpg."""

    pooled: bool
    name: str

    def options(self) -> dict[str, Any]:
        settings = ({} if self.pooled else SESSION) | naming(self.name)
        kind = PooledConnection if self.pooled else PlainConnection
        return {"server_settings": settings, "connection_class": kind, **self.caching()}

    def caching(self) -> dict[str, Any]:
        """Return the options of the statement cache for connections that others use.

        A prepared statement is kept: asyncpg would prepare it again from time to time, and PostgreSQL plan it
        again.
        """
        return {"statement_cache_size": 0} if self.pooled else {"max_cached_statement_lifetime": 0}


def naming(name: str) -> dict[str, str]:
    """Return the name as a setting, which every pooler accepts."""
    return {"application_name": name}


async def find_mode(url: str) -> ConnectionMode:
    """Make one connection to find out if the session's settings are accepted."""
    name = name_of(url)
    connection = await connect_alone(url, name, CONNECT_SECONDS)
    if connection is None:
        logger.info("the store is behind a pooler: settings and statements go with each transaction")
        return ConnectionMode(pooled=True, name=name)
    connection.terminate()
    return ConnectionMode(pooled=False, name=name)


async def connect_alone(url: str, name: str, seconds: float) -> Any:
    """Return a connection with an exclusive session; None through a pooler, whose sessions must stay clean.

    ``seconds`` is the limit for each answer.
    """
    # Only this session can have it; the user may have set the others, even if they are ignored.
    mark = token_hex(8)
    try:
        connection = await connect(
            url,
            server_settings={**naming(name), MARK: mark},
            timeout=seconds,
            command_timeout=seconds,
            statement_cache_size=0,
        )
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        return None
    is_alone = False
    try:
        is_alone = await connection.fetchval("SELECT current_setting($1, true)", MARK) == mark
    finally:
        if not is_alone:
            connection.terminate()
    return connection if is_alone else None
