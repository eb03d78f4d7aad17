"""Connection modes: direct to PostgreSQL, or through a pooler that gives each transaction another session.

Statements rely on a few settings. A direct session gets them at its start. A pooler refuses or ignores that, and
settings of its sessions would remain for other clients: then each transaction sets them for itself, a single
statement is a transaction, too, and none is prepared under a name.
"""

from __future__ import annotations

import contextlib
import logging
from secrets import token_hex
from typing import Any

import asyncpg
from msgspec import Struct

from dalsegno.adapters.postgres.connections.connect import connect, name_of

logger = logging.getLogger("dalsegno.postgres")

SESSION = {
    "search_path": "dalsegno",
    "jit": "off",  # compiling costs more than any statement here takes
    # Every statement here uses an index. Statistics of tables that fill and drain faster than they are analysed
    # must not
    # lead the planner to anything else, and a plan once made is kept.
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
