"""Authentication of callers: by key, by session, or as a local caller while no key exists.

A session lets the pages act for a key: its cookie, which scripts cannot read, contains 32 random bytes. The store keeps
only their hash, so the store's content opens no session. A session ends when it expires, at sign-out, and with its key.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
from fastapi import Depends, Request
from fastapi.params import Depends as Dependency
from msgspec import Struct

from dalsegno.admin.keys import GRANTS, Key, KeyRecords, Quotas, Scope, digest_of, is_secret_of, read_key
from dalsegno.errors import (
    BadConfiguration,
    Forbidden,
    OperatorError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records
from dalsegno.ports.stack import Stack
from dalsegno.server.http.rate_limits import Failures
from dalsegno.server.http.request import GuardedRequest
from dalsegno.server.operations import store_probe
from dalsegno.server.settings import ServerSettings, is_loopback

TOUCH_EVERY = 60.0
"""Resolution, in seconds, of the time at which a key was last used."""

PATIENCE = 10.0
"""Seconds within which the store must return the keys to a call that needs them; the call has done nothing until
then."""
REFRESH_SECONDS = 0.5
"""The same limit for calls that can use the cached keys."""
END_SECONDS = 1.0
"""Seconds that an abandoned read has to end when the server stops."""

MAKE_A_KEY = "`dalsegno keys add NAME --scope admin` makes one and shows it once"


class Authenticator:
    """The cached keys of the store, and the checks against them."""

    _records: Records
    _clock: Clock

    def __init__(self, settings: ServerSettings) -> None:
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

    def use(self, stack: Stack) -> None:
        """Read the keys of this store."""
        self._records, self._clock = stack.records, stack.clock

    @property
    def key_records(self) -> KeyRecords:
        return KeyRecords(self._records, self._clock)

    @property
    def sessions(self) -> Sessions:
        return Sessions(self._records, self._clock, self.settings.session_seconds)

    # -- the keys ---------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the store held no key at the last read."""
        return not self._keys

    async def keys(self, patience: float | None = None) -> Mapping[str, Key]:
        """Return the keys. A key that another process added or revoked takes effect after `keys_seconds`. Raises
        Unavailable if the store does not answer in time."""
        patience, is_own = self.patience if patience is None else patience, False
        while (
            not self._is_fresh() and not is_own
        ):  # a read that another call began may be too old for this one
            is_own = self._reading is None
            await self._wait_for(self._reading or self._begin_reading(), patience)
        return self._keys

    async def known_keys(self) -> Mapping[str, Key]:
        """Return the keys of the last read, for calls that must be answered while the store is unavailable. Raises
        Unavailable if there was no read, or if the keys are known to have changed since."""
        try:
            return await self.keys(REFRESH_SECONDS)
        except OperatorError:
            if self._read_at is None:
                raise
            return self._keys

    async def refresh(self, patience: float = REFRESH_SECONDS) -> None:
        """Refresh the keys of an open server, also on calls that are refused for another reason."""
        if self.is_open:
            with contextlib.suppress(OperatorError):  # `admit` reports the error to callers that need access
                await self.keys(patience)

    def _begin_reading(self) -> asyncio.Task[None]:
        """Start reading the keys in a task of its own, one at a time, so that each caller can apply its own
        timeout."""
        self._reading_since = time.monotonic()
        self._reading = asyncio.create_task(self._read(), name="dalsegno-keys")
        self._reading.add_done_callback(self._end_reading)
        return self._reading

    async def _read(self) -> None:
        began = time.monotonic()
        self._keys = {key.id: key for key in await self.key_records.all()}
        self._quotas = {each: key.quotas.over(self.settings.quotas) for each, key in self._keys.items()}
        self._read_at = began

    def _end_reading(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # retrieve the exception so that asyncio does not log it

    async def _wait_for(self, reading: asyncio.Task[None], patience: float) -> None:
        """Wait for a read. The timeout counts from the start of the read, not from the call."""
        left = self._reading_since + patience - time.monotonic()
        await asyncio.wait({reading}, timeout=max(left, 0.0))
        if not reading.done() or reading.cancelled():
            raise Unavailable(f"the store did not return the keys within {patience:g} s; nothing was done")
        reading.result()

    async def close(self) -> None:
        """Stop reading keys."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading}, timeout=END_SECONDS)

    def _is_fresh(self) -> bool:
        return self._read_at is not None and time.monotonic() - self._read_at < self.settings.keys_seconds

    def quotas_of(self, key: str) -> Quotas:
        """Return the quotas of a key as of the last read; those of the server for an unknown key."""
        return self._quotas.get(key, self.settings.quotas)

    def look_again(self) -> None:
        """Invalidate the cached keys after a change in this process, which takes effect at once."""
        self._read_at = None

    # -- admission --------------------------------------------------------------------------------------------

    async def admit(self, visit: GuardedRequest) -> Caller:
        return await self._admit(visit, await self.keys())

    async def admit_from_cache(self, visit: GuardedRequest) -> Caller:
        """Admit a caller of a health or metrics route while the store is unavailable, unless only the store knows
        the caller."""
        is_session = visit.session is not None and visit.headers.get("authorization") is None
        keys = await (self.keys(store_probe.PATIENCE) if is_session else self.known_keys())
        return await self._admit(visit, keys)

    async def _admit(self, visit: GuardedRequest, keys: Mapping[str, Key]) -> Caller:
        if not keys:
            return self._admit_without_keys(visit)
        authorization = visit.headers.get("authorization")
        if authorization is not None:
            key = self._check_key(_bearer(authorization), visit.address, keys)
            return caller_with(key, "key")
        if visit.session is not None:
            return await self._by_session(visit, keys)
        raise Unauthenticated(KEY_WANTED)

    def _admit_without_keys(self, visit: GuardedRequest) -> Caller:
        if visit.address is not None and not is_loopback(visit.address):
            raise Unauthenticated(
                f"this server has no keys and answers only to its own machine; {MAKE_A_KEY}"
            )
        return OPEN

    async def check_key(self, text: str, address: str | None) -> Key:
        """Return the key of this text, or raise the reason why it is refused."""
        return self._check_key(text, address, await self.keys())

    def _check_key(self, text: str, address: str | None, keys: Mapping[str, Key]) -> Key:
        now = self._clock.now()
        named, secret = read_key(text) or ("", "")
        key = keys.get(named)
        if not is_secret_of(key, secret) or key is None:
            why = "this server does not know this key"
        elif (wrong := key.why_not(now)) is not None:
            why = f"the key '{key.name}' {wrong}"
        else:
            self._note_use(key, now)
            return key
        wait = self.failures.note(address or "", time.monotonic())
        if wait > 0:
            raise TooManyRequests(f"too many wrong keys from {address}; wait {wait:.0f} s", wait)
        raise Unauthenticated(f"{why}; {MAKE_A_KEY}")

    async def _by_session(self, visit: GuardedRequest, keys: Mapping[str, Key]) -> Caller:
        session = await self.sessions.find(visit.session or "")
        key = keys.get(session.key) if session is not None else None
        if key is None or key.why_not(self._clock.now()) is not None:
            raise Unauthenticated("the session has expired: sign in again")
        return caller_with(key, "session")

    async def is_still_valid(self, caller: Caller) -> bool:
        """Whether a caller that was admitted earlier would still be admitted, according to the cached keys."""
        with contextlib.suppress(OperatorError):  # an unreachable store does not end streams
            await self.keys(REFRESH_SECONDS)
        if caller.via == "nobody":
            return True
        key = self._keys.get(caller.key or "")
        return (
            self.is_open if caller.key is None else key is not None and key.why_not(self._clock.now()) is None
        )

    # -- last uses of keys ------------------------------------------------------------------------------------

    def _note_use(self, key: Key, now: float) -> None:
        """Record a use. The cached key is as old as the last read and lacks a use that is being written."""
        last = max(key.used_at or 0.0, self._noted.get(key.id, 0.0))
        if now - last >= TOUCH_EVERY:
            self._used[key.id] = self._noted[key.id] = now

    async def write_uses(self) -> None:
        """Write the last uses of keys, at most once a minute per key, outside of the calls."""
        used, self._used = self._used, {}
        for key, at in used.items():
            await self.key_records.touch(key, at)
        if used and self._read_at is not None:
            self._read_at = -math.inf  # read again; access has not changed


def _bearer(authorization: str) -> str:
    kind, _, text = authorization.partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""


class NoKeyConfigured(BadConfiguration):
    """The refusal to listen without keys, with the hint for the command line."""

    hint = "On this machine alone (--host 127.0.0.1) a server needs no keys."


async def check_listening(records: Records, clock: Clock, settings: ServerSettings) -> str | None:
    """Check, before a server listens, that it is not open to other machines. Return the warning to print if it is
    open on this machine."""
    if await KeyRecords(records, clock).any():
        return None
    if not settings.is_local:
        raise NoKeyConfigured(
            f"without keys everyone who reaches {settings.host} could run workflows here; {MAKE_A_KEY}"
        )
    return (
        f"There are no keys: everyone on this machine may do everything at port {settings.port}. "
        "`dalsegno keys add NAME --scope admin` makes a key and ends this open access."
    )


# -- access: a route declares the scope it needs and receives the caller -------------------------------------


KEY_WANTED = "this needs a key: send 'Authorization: Bearer ds_…'; `dalsegno keys add NAME` makes one"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. While the store holds no keys, every caller on this machine is ``open``."""

    name: str
    scopes: frozenset[Scope]
    via: Literal["open", "key", "session", "nobody"] = "open"
    key: str | None = None
    """The id of the key, also for a session."""
    queues: frozenset[str] | None = None
    """Queues whose tasks it may claim as a remote worker; None: all queues."""


OPEN = Caller("open", GRANTS["admin"])
NOBODY = Caller("nobody", frozenset(), "nobody")
"""A caller without a key, on the few routes that check access themselves or need no key."""


def caller_with(key: Key, via: Literal["key", "session"]) -> Caller:
    return Caller(key.name, key.grants, via, key.id, key.served_queues)


def caller_of(request: Request) -> Caller:
    """Return the caller that the guard determined. Without a guard there is no access."""
    caller: Caller = getattr(request.state, "caller", NOBODY)
    return caller


def needs(scope: Scope) -> Dependency:
    """Return a dependency that refuses callers without this scope and passes the `Caller` to the route."""

    async def check(request: Request) -> Caller:
        caller = caller_of(request)
        check_scope(caller, scope)
        return caller

    check.scope = scope  # type: ignore[attr-defined]  # read by `scope_of`
    return _depends(check)


def scope_of(dependency: Dependency) -> Scope | None:
    """Return the scope that a dependency made by `needs` requires."""
    found: Scope | None = getattr(dependency.dependency, "scope", None)
    return found


def check_scope(caller: Caller, scope: Scope) -> None:
    if caller.via == "nobody":
        raise Unauthenticated(KEY_WANTED)
    if scope not in caller.scopes:
        held = ", ".join(sorted(caller.scopes)) or "nothing"
        raise Forbidden(f"this needs a key with the scope '{scope}'; '{caller.name}' has {held}")


def _depends(check: Callable[[Request], Awaitable[Caller]]) -> Dependency:
    found = Depends(check)
    if not isinstance(found, Dependency):
        raise TypeError("FastAPI's Depends has an unexpected form; this version of FastAPI is not supported")
    return found


# -- sessions --------------------------------------------------------------------------------------------------


SESSION_KIND = "session"
SESSIONS_PER_PAGE = 500


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
        await self.records.put(SESSION_KIND, digest_of(token), msgspec.json.encode(session))
        return token, session

    async def find(self, token: str) -> Session | None:
        record = await self.records.get(SESSION_KIND, digest_of(token))
        if record is None:
            return None
        session = msgspec.json.decode(record.data, type=Session)
        return session if session.expires_at > self.clock.now() else None

    async def close(self, token: str) -> None:
        await self.records.remove(SESSION_KIND, digest_of(token))

    async def sweep(self) -> int:
        """Remove expired sessions; return their number."""
        gone, after, now = 0, "", self.clock.now()
        while True:
            page = await self.records.page(SESSION_KIND, after, SESSIONS_PER_PAGE)
            for record in page:
                if msgspec.json.decode(record.data, type=Session).expires_at <= now:
                    gone += await self.records.remove(SESSION_KIND, record.id)
            if len(page) < SESSIONS_PER_PAGE:
                return gone
            after = page[-1].id
