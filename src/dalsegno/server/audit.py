"""The audit log: who changed what and when. Never bodies, queries or secrets.

Entries wait in memory until the reply has been sent and are then appended in batches; an orderly stop writes them all.
A process that is killed may lose those of its last quarter of a second.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.app import App
from dalsegno.ports.records import Records
from dalsegno.server import paths
from dalsegno.server.access import NOBODY, Caller
from dalsegno.server.failures import subscriber
from dalsegno.server.visit import Visit

logger = logging.getLogger("dalsegno.audit")

LOG = "audit"
BATCH = 500
WAITING = 10_000
"""Entries kept while the store is out of reach; the ones beyond go to the Python log `dalsegno.audit`."""


TOO_MANY = 429
NOISE = (400, 404, 405, 408, 413, 415, 422, 429)
"""Replies to callers without a key that are not noted: the request was malformed, or named nothing that exists."""
SUMMED_SECONDS = 60.0
SUMMED_ADDRESSES = 100
"""Addresses and routes that are told apart within a minute; the refusals of all others share one entry a route."""
TRIMMED_EVERY = 100
"""The log is checked against its limit whenever it may have grown by this part of it."""


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
    count: int | None = None
    """How many refusals like this one followed within its minute; such an entry stands for all of them."""


class Refusals:
    """Refusals of callers without a key, and of keys beyond a quota: the first of a minute from an address, or with a
    key, is an entry, the others are counted and become one entry at the minute's end. So a flood adds a bounded number
    of rows, whatever it sends."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._counted: dict[tuple[str, str | None, int | None], tuple[Entry, int]] = {}

    def add(self, entry: Entry) -> list[Entry]:
        """What is to be written now."""
        due = self.due(entry.at)
        if not self._counted:
            self._since = entry.at
        place = (entry.key or subscriber(entry.address or ""), entry.action, entry.status)
        if place not in self._counted and len(self._counted) >= SUMMED_ADDRESSES:
            place, entry = ("", entry.action, entry.status), replace(entry, address=None)
        first, more = self._counted.get(place, (entry, -1))
        self._counted[place] = first, more + 1
        return due if more >= 0 else [*due, entry]

    def due(self, now: float) -> list[Entry]:
        """The counts of a minute that is over."""
        if now - self._since < SUMMED_SECONDS:
            return []
        found = [replace(first, count=more) for first, more in self._counted.values() if more]
        self._counted.clear()
        return found


class Audit:
    def __init__(self, app: App) -> None:
        self.app = app
        self._waiting: deque[Entry] = deque()
        self._refusals = Refusals()
        self._appended: float = math.inf
        """Since the log was last checked against its limit; before the first check nothing is known."""
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
                self._note_call(_entry(visit, scope, began, status))

        return noted

    def _note_call(self, entry: Entry) -> None:
        is_limited = entry.via != "nobody" and entry.status == TOO_MANY  # a key beyond its quota
        if (entry.via != "nobody" and not is_limited) or (entry.status is not None and entry.status < 400):
            self.note(entry)
        elif is_limited or entry.status not in NOISE:
            for each in self._refusals.add(entry):
                self.note(each)

    def note(self, entry: Entry) -> None:
        if len(self._waiting) >= WAITING:
            logger.warning("the audit log cannot be written; this was not: %s", _text(entry))
            return
        self._waiting.append(entry)

    async def flush(self) -> None:
        """Appends what waits. What cannot be appended goes on waiting, and the error is raised. Whoever gives up
        waiting for this does not stop it: what is being written may fail later, and has to be put back then."""
        if self._writing is None or self._writing.done():
            for each in self._refusals.due(self.app.client.stack.clock.now()):
                self.note(each)
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
        self._appended += len(batch)

    async def close(self) -> None:
        for each in self._refusals.due(math.inf):
            self.note(each)
        try:
            await self.flush()
        finally:
            for entry in self._waiting:
                logger.warning("the audit log cannot be written; this was not: %s", _text(entry))

    async def trim(self, seconds: float) -> int:
        """Removes what is older, in chunks; how many entries."""
        return await self._trim_before(self.app.client.stack.clock.now() - seconds)

    async def trim_to(self, rows: int) -> int:
        """Remove the oldest entries beyond ``rows``, in chunks; how many. Entries of one batch share their time and go
        together. Asks the store only where the log may have grown by a hundredth of the limit."""
        if self._appended < max(rows // TRIMMED_EVERY, 1):
            return 0
        newest = await self.records.entries(LOG, limit=1)
        over = await self.records.entries(LOG, newest[0].number - rows + 1, 1) if newest else []
        gone = await self._trim_before(math.nextafter(over[0].at, math.inf)) if over else 0
        self._appended = 0
        return gone

    async def _trim_before(self, moment: float) -> int:
        gone = 0
        while chunk := await self.records.trim(LOG, moment):
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
