"""The audit log: who changed what and when. Never bodies, queries or secrets.

Entries wait in memory until the reply has been sent and are then appended in batches; an orderly stop writes them all.
A process that is killed may lose those of its last quarter of a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.app import App
from dalsegno.ports.records import Records
from dalsegno.server import paths
from dalsegno.server.access import NOBODY, Caller
from dalsegno.server.visit import Visit

logger = logging.getLogger("dalsegno.audit")

LOG = "audit"
BATCH = 500
WAITING = 10_000
"""Entries kept while the store is out of reach; the ones beyond go to the Python log `dalsegno.audit`."""


NOISE = (404, 405, 429)
"""Answers on public routes that changed nothing: whoever sends them must not be able to fill the log."""


class Entry(Struct, frozen=True, omit_defaults=True):
    at: float
    who: str
    via: str
    method: str
    path: str
    action: str | None = None
    """Module and name of the route: ``executions.start``."""
    status: int | None = None
    """None: the caller went away before there was an answer."""
    address: str | None = None
    key: str | None = None


class Audit:
    def __init__(self, app: App) -> None:
        self.app = app
        self._waiting: deque[Entry] = deque()
        self._writing: asyncio.Task[None] | None = None

    @property
    def records(self) -> Records:
        return self.app.client.stack.records

    def around(self, visit: Visit, app: ASGIApp) -> ASGIApp:
        """The same application; calls that may change something are noted when they are over."""
        if visit.is_safe or not paths.is_audited(visit.path):
            return app
        began = self.app.client.stack.clock.now()

        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            status: int | None = None

            async def noting(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, noting)
            except Exception:
                status = status or 500
                raise
            finally:
                entry = _entry(visit, scope, began, status)
                if entry.via != "nobody" or status not in NOISE:
                    self.note(entry)

        return noted

    def note(self, entry: Entry) -> None:
        if len(self._waiting) >= WAITING:
            logger.warning("the audit log cannot be written; this was not: %s", _text(entry))
            return
        self._waiting.append(entry)

    async def flush(self) -> None:
        """Appends what waits. What cannot be appended goes on waiting, and the error is raised. Whoever gives up
        waiting for this does not stop it: what is being written may fail later, and has to be put back then."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="dalsegno-audit")
            self._writing.add_done_callback(_take_note)
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        while self._waiting:
            await self._append([self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))])

    async def _append(self, batch: list[Entry]) -> None:
        try:
            await self.records.append(LOG, *map(msgspec.json.encode, batch))
        except Exception:
            self._waiting.extendleft(reversed(batch))
            raise

    async def close(self) -> None:
        try:
            await self.flush()
        finally:
            for entry in self._waiting:
                logger.warning("the audit log cannot be written; this was not: %s", _text(entry))

    async def trim(self, seconds: float) -> int:
        """Removes what is older, in chunks; how many entries."""
        before, gone = self.app.client.stack.clock.now() - seconds, 0
        while chunk := await self.records.trim(LOG, before):
            gone += chunk
        return gone


def _entry(visit: Visit, scope: Scope, at: float, status: int | None) -> Entry:
    caller: Caller = scope.get("state", {}).get("caller", NOBODY)
    return Entry(
        at=at,
        who=caller.name,
        via=caller.via,
        method=visit.method,
        path=paths.without_secrets(visit.path),
        action=_action(scope),
        status=status,
        address=visit.address,
        key=caller.key,
    )


def _take_note(task: asyncio.Task[None]) -> None:
    """Who waits for it is told; if nobody does any more, the next who writes is."""
    if not task.cancelled():
        task.exception()


def _action(scope: Scope) -> str | None:
    endpoint = scope.get("endpoint")
    if endpoint is None:
        return None
    return f"{endpoint.__module__.rpartition('.')[2]}.{endpoint.__name__}"


def _text(entry: Entry) -> str:
    return msgspec.json.encode(entry).decode()
