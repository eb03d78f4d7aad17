"""Sessions of the pages: a cookie that scripts cannot read represents a key.

The cookie contains 32 random bytes; the store keeps only their hash, so the store's content opens no session. A
session ends when it expires, at sign-out, and with its key.
"""

from __future__ import annotations

import secrets

import msgspec
from msgspec import Struct

from dalsegno.admin.keys import Key, digest_of
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records

KIND = "session"
COOKIE = "dalsegno_session"
PAGE = 500


class Session(Struct, frozen=True):
    key: str
    expires_at: float


class Sessions:
    def __init__(self, records: Records, clock: Clock, seconds: float) -> None:
        self.records = records
        self.clock = clock
        self.seconds = seconds

    async def open(self, key: Key) -> tuple[str, Session]:
        token = secrets.token_urlsafe(32)
        session = Session(key.id, self.clock.now() + self.seconds)
        await self.records.put(KIND, digest_of(token), msgspec.json.encode(session))
        return token, session

    async def find(self, token: str) -> Session | None:
        record = await self.records.get(KIND, digest_of(token))
        if record is None:
            return None
        session = msgspec.json.decode(record.data, type=Session)
        return session if session.expires_at > self.clock.now() else None

    async def close(self, token: str) -> None:
        await self.records.remove(KIND, digest_of(token))

    async def sweep(self) -> int:
        """Remove expired sessions; return their number."""
        gone, after, now = 0, "", self.clock.now()
        while True:
            page = await self.records.page(KIND, after, PAGE)
            for record in page:
                if msgspec.json.decode(record.data, type=Session).expires_at <= now:
                    gone += await self.records.remove(KIND, record.id)
            if len(page) < PAGE:
                return gone
            after = page[-1].id
