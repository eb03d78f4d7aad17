"""How connections are made: straight to PostgreSQL, or through a pooler that gives each transaction another session.

Statements rely on a few settings. A session of one's own takes them with its start. A pooler refuses or ignores that,
and what is set in its sessions is left to strangers: then each transaction sets them for itself, a statement alone is
a transaction, too, and none is prepared under a name.
"""

from __future__ import annotations

import contextlib
import logging
from secrets import token_hex
from typing import Any

import asyncpg
from msgspec import Struct

from dalsegno.adapters.postgres.naming import name_of
from dalsegno.adapters.postgres.servers import connect

logger = logging.getLogger("dalsegno.postgres")

SESSION = {
    "search_path": "dalsegno",
    "jit": "off",  # compiling costs more than any statement here takes
    # Every statement here goes by an index. Tables that fill and drain faster than they are analysed must not tempt
    # the planner to anything else, and a plan once made holds.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
SET_LOCAL = "".join(f"; SET LOCAL {name} = {value}" for name, value in SESSION.items())
BEGIN_ALONE = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'" + SET_LOCAL
CONNECT_SECONDS = 30.0
MARK = "dalsegno.session"


class PlainConnection(asyncpg.Connection):  # type: ignore[misc]
    """Nothing here leaves anything behind in a session, so a connection goes back to the pool as it is."""

    def get_reset_query(self) -> str:
        return ""


class PooledConnection(PlainConnection):
    """Whoever begins a transaction gets the settings with it."""

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
                    await super().execute("ROLLBACK")  # what went wrong before is what is told
            raise
        await super().execute("COMMIT")
        return rows


class Way(Struct, frozen=True):
    """What asyncpg is told for every connection."""

    pooled: bool
    name: str

    def options(self) -> dict[str, Any]:
        settings = ({} if self.pooled else SESSION) | naming(self.name)
        kind = PooledConnection if self.pooled else PlainConnection
        return {"server_settings": settings, "connection_class": kind, **self.caching()}

    def caching(self) -> dict[str, Any]:
        """For connections that are somebody else's to use. A statement that is prepared stays so: asyncpg would prepare
        it again from time to time, and PostgreSQL plan it again."""
        return {"statement_cache_size": 0} if self.pooled else {"max_cached_statement_lifetime": 0}


def naming(name: str) -> dict[str, str]:
    """As a setting, which every pooler knows."""
    return {"application_name": name}


async def find_way(url: str) -> Way:
    """One connection, to see whether the session's settings are taken."""
    name = name_of(url)
    connection = await connect_alone(url, name, CONNECT_SECONDS)
    if connection is None:
        logger.info("the store is behind a pooler: settings and statements go with each transaction")
        return Way(pooled=True, name=name)
    connection.terminate()
    return Way(pooled=False, name=name)


async def connect_alone(url: str, name: str, seconds: float) -> Any:
    """A connection whose session is nobody else's; None through a pooler, where nothing may be left in it. ``seconds``
    are for each answer."""
    # Only this session can have it; other settings may be the user's own, whatever is ignored.
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
