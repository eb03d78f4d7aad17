"""Sessions that are of no use any more are replaced: all of them, as what has happened to one has happened to all.

The next connection is made by the store's URL, as the first one was. Where it names several servers, and says with
``target_session_attrs`` which of them is meant, this is how a process finds the new primary.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from dalsegno.adapters.postgres.errors import sqlstate_of
from dalsegno.adapters.postgres.sqlstates import NO_SESSION, READ_ONLY

logger = logging.getLogger("dalsegno.postgres")

SAY_AGAIN = 30.0
"""Seconds after which it is said again that there is no primary: steps in progress try again all the time."""


class Renewal:
    """Of the connections in the pools of a store."""

    def __init__(self, pool: Any) -> None:
        self._pools = [pool]
        self._said_at: float | None = None

    def add(self, pool: Any) -> None:
        """Another one whose sessions are of no use when those of the first are not."""
        self._pools.append(pool)

    async def after(self, error: Exception) -> None:
        """If the error says that sessions are of no use, none of those that are open is used again."""
        state = sqlstate_of(error)
        if state in NO_SESSION:
            for pool in self._pools:
                await pool.expire_connections()
            if state == READ_ONLY:
                self._say_no_primary(error)

    def _say_no_primary(self, error: Exception) -> None:
        now = time.monotonic()
        if self._said_at is not None and now - self._said_at < SAY_AGAIN:
            return
        self._said_at = now
        logger.warning(
            "PostgreSQL takes no writes (%s): it is a standby, or has become one. Its connections are given up and "
            "the primary is looked for. Name all servers in the store's URL, with target_session_attrs=read-write",
            error,
        )
