"""Connecting to PostgreSQL: names of connections, several servers, replaced sessions.

- Names: connections show in ``pg_stat_activity`` as ``dalsegno/1.2.3 listener web-1:4711``. That is the version,
  the purpose of a connection other than the store's own, and the ``application_name`` of the store's URL, or else
  the host and the process. PostgreSQL shows the first 63 bytes.
- Several servers: the driver gives all servers of a URL one time limit together, so that a server that does not
  answer uses it up and the others are never tried. Here each one gets a limit of its own.
- Replaced sessions: if one session has become useless, all are replaced, because the others share the cause. The
  next connection is made by the store's URL again. If it names several servers and selects one with
  ``target_session_attrs``, this is how a process finds the new primary.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import time
from typing import Any, Literal
from urllib.parse import parse_qs

import asyncpg

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
