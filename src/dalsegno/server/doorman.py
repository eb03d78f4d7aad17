"""Who comes in: by a key, by a session of the pages, or as a caller on this machine where no key was made."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping

from dalsegno.app import App
from dalsegno.errors import (
    BadConfiguration,
    OperatorError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records
from dalsegno.server import reaching
from dalsegno.server.access import KEY_WANTED, OPEN, Caller
from dalsegno.server.failures import Failures
from dalsegno.server.keys import Key, KeyBook, is_secret_of, read_key
from dalsegno.server.quotas import Quotas
from dalsegno.server.sessions import Sessions
from dalsegno.server.settings import ServerSettings, is_loopback
from dalsegno.server.visit import Visit

TOUCH_EVERY = 60.0
"""How exactly one is told when a key was last used."""

PATIENCE = 10.0
"""Seconds in which the store must tell the keys to a call that needs them; the call has done nothing by then."""
GLIMPSE = 0.5
"""The same, where the keys that are known will do."""
PARTING = 1.0
"""Seconds in which a reading that is given up must be over when a server stops."""

MAKE_A_KEY = "`dalsegno keys add NAME --scope admin` makes one and shows it once"


class Doorman:
    """Knows the keys of the store, as they were a moment ago."""

    def __init__(self, app: App, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings
        self.failures = Failures(settings.failures)
        self._keys: dict[str, Key] = {}
        self._quotas: dict[str, Quotas] = {}
        self._read_at: float | None = None
        self.patience = PATIENCE
        self._reading: asyncio.Task[None] | None = None
        self._reading_since = 0.0
        self._used: dict[str, float] = {}
        self._noted: dict[str, float] = {}

    @property
    def book(self) -> KeyBook:
        return KeyBook(self._records, self._clock)

    @property
    def sessions(self) -> Sessions:
        return Sessions(self._records, self._clock, self.settings.session_seconds)

    @property
    def _records(self) -> Records:
        return self.app.client.stack.records

    @property
    def _clock(self) -> Clock:
        return self.app.client.stack.clock

    # -- the keys ---------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether there was no key when it last looked."""
        return not self._keys

    async def keys(self, patience: float | None = None) -> Mapping[str, Key]:
        """A key that was added or revoked by another process is known after `keys_seconds`. Unavailable if the store
        does not tell in time."""
        patience, is_own = self.patience if patience is None else patience, False
        while (
            not self._is_fresh() and not is_own
        ):  # what somebody else began to read may be too old for this call
            is_own = self._reading is None
            await self._wait_for(self._reading or self._begin_reading(), patience)
        return self._keys

    async def known_keys(self) -> Mapping[str, Key]:
        """For what must be told while the store is silent: the keys as they were when it last spoke. Unavailable where
        nothing is known, or where it is known that they have changed."""
        try:
            return await self.keys(GLIMPSE)
        except OperatorError:
            if self._read_at is None:
                raise
            return self._keys

    async def glance(self, patience: float = GLIMPSE) -> None:
        """An open door is watched even by calls that are refused for another reason."""
        if self.is_open:
            with contextlib.suppress(OperatorError):  # whoever needs to come in is told so by `admit`
                await self.keys(patience)

    def _begin_reading(self) -> asyncio.Task[None]:
        """In a task of its own, one at a time: however long a silent store takes, callers wait as long as they like."""
        self._reading_since = time.monotonic()
        self._reading = asyncio.create_task(self._read(), name="dalsegno-keys")
        self._reading.add_done_callback(self._end_reading)
        return self._reading

    async def _read(self) -> None:
        began = time.monotonic()
        self._keys = {key.id: key for key in await self.book.all()}
        self._quotas = {each: key.quotas.over(self.settings.quotas) for each, key in self._keys.items()}
        self._read_at = began

    def _end_reading(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # whoever wanted to know may have gone: it is nobody's surprise

    async def _wait_for(self, reading: asyncio.Task[None], patience: float) -> None:
        """Counted from its beginning: nobody waits anew for the same silence."""
        left = self._reading_since + patience - time.monotonic()
        await asyncio.wait({reading}, timeout=max(left, 0.0))
        if not reading.done() or reading.cancelled():
            raise Unavailable(f"the store did not tell the keys within {patience:g} s; nothing was done")
        reading.result()

    async def close(self) -> None:
        """Nothing is read any more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading}, timeout=PARTING)

    def _is_fresh(self) -> bool:
        return self._read_at is not None and time.monotonic() - self._read_at < self.settings.keys_seconds

    def quotas_of(self, key: str) -> Quotas:
        """As they were when it last looked; of a key that is not known, the server's."""
        return self._quotas.get(key, self.settings.quotas)

    def look_again(self) -> None:
        """Somebody changed a key here: it counts at once."""
        self._read_at = None

    # -- coming in --------------------------------------------------------------------------------------------

    async def admit(self, visit: Visit) -> Caller:
        return await self._admit(visit, await self.keys())

    async def admit_by_memory(self, visit: Visit) -> Caller:
        """Who asks how the server is comes in although the store is silent, unless it alone knows who that is."""
        is_session = visit.session is not None and visit.headers.get("authorization") is None
        keys = await (self.keys(reaching.PATIENCE) if is_session else self.known_keys())
        return await self._admit(visit, keys)

    async def _admit(self, visit: Visit, keys: Mapping[str, Key]) -> Caller:
        if not keys:
            return self._open_door(visit)
        authorization = visit.headers.get("authorization")
        if authorization is not None:
            key = self._check_key(_bearer(authorization), visit.address, keys)
            return key.caller("key")
        if visit.session is not None:
            return await self._by_session(visit, keys)
        raise Unauthenticated(KEY_WANTED)

    def _open_door(self, visit: Visit) -> Caller:
        if visit.address is not None and not is_loopback(visit.address):
            raise Unauthenticated(
                f"this server has no keys and answers only to its own machine; {MAKE_A_KEY}"
            )
        return OPEN

    async def check_key(self, text: str, address: str | None) -> Key:
        """The key that this is, or why nobody comes in with it."""
        return self._check_key(text, address, await self.keys())

    def _check_key(self, text: str, address: str | None, keys: Mapping[str, Key]) -> Key:
        now = self._clock.now()
        named, secret = read_key(text) or ("", "")
        key = keys.get(named)
        if not is_secret_of(key, secret) or key is None:
            why = "this key is not one of this server's"
        elif (wrong := key.why_not(now)) is not None:
            why = f"the key '{key.name}' {wrong}"
        else:
            self._note_use(key, now)
            return key
        wait = self.failures.note(address or "", time.monotonic())
        if wait > 0:
            raise TooManyRequests(f"too many wrong keys from {address}; wait {wait:.0f} s", wait)
        raise Unauthenticated(f"{why}; {MAKE_A_KEY}")

    async def _by_session(self, visit: Visit, keys: Mapping[str, Key]) -> Caller:
        session = await self.sessions.find(visit.session or "")
        key = keys.get(session.key) if session is not None else None
        if key is None or key.why_not(self._clock.now()) is not None:
            raise Unauthenticated("the session is over: sign in again")
        return key.caller("session")

    async def is_welcome(self, caller: Caller) -> bool:
        """Whether who came in some time ago could come in now, as far as is known."""
        with contextlib.suppress(OperatorError):  # a store out of reach ends no stream
            await self.keys(GLIMPSE)
        if caller.via == "nobody":
            return True
        key = self._keys.get(caller.key or "")
        return (
            self.is_open if caller.key is None else key is not None and key.why_not(self._clock.now()) is None
        )

    # -- what is noted about keys -----------------------------------------------------------------------------

    def _note_use(self, key: Key, now: float) -> None:
        """What is known of a key is as old as the last look: a use that is being written is not in it yet."""
        last = max(key.used_at or 0.0, self._noted.get(key.id, 0.0))
        if now - last >= TOUCH_EVERY:
            self._used[key.id] = self._noted[key.id] = now

    async def write_uses(self) -> None:
        """Last use of keys, at most once a minute for each; not in the way of the call."""
        used, self._used = self._used, {}
        for key, at in used.items():
            await self.book.touch(key, at)
        if used and self._read_at is not None:
            self._read_at = -math.inf  # to be read again; who may come in has not changed


def _bearer(authorization: str) -> str:
    kind, _, text = authorization.partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""


class OpenToOthers(BadConfiguration):
    """With the hint that helps on a command line."""

    hint = "On this machine alone (--host 127.0.0.1) a server needs no keys."


async def check_listening(records: Records, clock: Clock, settings: ServerSettings) -> str | None:
    """Before a server listens: refuses to be open to others. The sentence to print where it is open on this machine."""
    if await KeyBook(records, clock).any():
        return None
    if not settings.is_local:
        raise OpenToOthers(
            f"without keys everybody who reaches {settings.host} could run workflows here; {MAKE_A_KEY}"
        )
    return (
        f"There are no keys: everybody on this machine may do everything at port {settings.port}. "
        "`dalsegno keys add NAME --scope admin` makes a key and closes the door."
    )
