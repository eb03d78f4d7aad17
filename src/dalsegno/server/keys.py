"""API keys: shown once, kept as a hash, revoked but never forgotten.

A key is ``ds_<id>_<secret>``. The secret is 32 random bytes: a plain SHA-256 of it cannot be undone by guessing. A
revoked key keeps its record: a store that ever had a key never counts as open again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records
from dalsegno.server.access import GRANTS, Caller, Scope
from dalsegno.server.quotas import NO_QUOTAS, Quotas, read_quotas

KIND = "key"
PAGE = 500
MAX_NAME = 100
_TEXT = re.compile(r"ds_([0-9a-f]{12})_([0-9a-f]{64})", re.ASCII)
NAME = "[A-Za-z0-9_][A-Za-z0-9_ .@:+-]{0,99}"
_NAME = re.compile(NAME)
ALL_QUEUES = "*"
LONGEST_QUEUE = 200
MOST_QUEUES = 50


class Key(Struct, frozen=True):
    """As it is stored; without its secret."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_at: float
    created_by: str = ""
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None
    """To the minute."""
    queues: tuple[str, ...] | None = None
    """Whose tasks a remote worker may take with it; None: of all, as for every key from before queues were named."""
    quotas: Quotas = NO_QUOTAS

    @property
    def serves_all(self) -> bool:
        """Whether a remote worker may take tasks of every queue with it without anyone having said so."""
        return self.queues is None and "worker" in self.scopes and "admin" not in self.scopes

    def caller(self, via: Literal["key", "session"]) -> Caller:
        named = None if self.queues is None or ALL_QUEUES in self.queues else frozenset(self.queues)
        return Caller(self.name, self.grants, via, self.id, named)

    @property
    def grants(self) -> frozenset[Scope]:
        return frozenset[Scope]().union(*(GRANTS[scope] for scope in self.scopes))

    def why_not(self, now: float) -> str | None:
        """What is wrong with it at this time, as a half sentence."""
        if self.revoked_at is not None:
            return "was revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "has expired"
        return None


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_NO_DIGEST = digest_of("")


def read_key(text: str) -> tuple[str, str] | None:
    """Id and secret, where it looks like a key at all."""
    found = _TEXT.fullmatch(text)
    return (found[1], found[2]) if found is not None else None


def is_secret_of(key: Key | None, secret: str) -> bool:
    """In constant time, and in the same time for a key that does not exist."""
    return hmac.compare_digest(digest_of(secret), key.digest if key is not None else _NO_DIGEST)


class KeyBook:
    """Making, listing and revoking keys in a store."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self.records = records
        self.clock = clock

    async def add(
        self,
        name: str,
        scopes: Collection[Scope],
        expires: str | float | None = None,
        by: str = "",
        queues: Sequence[str] | None = None,
        quotas: Quotas = NO_QUOTAS,
    ) -> tuple[Key, str]:
        """The key and its text, which is nowhere else to be had. ``queues``: whose tasks it may take; a key for remote
        workers must name them, or ``*``."""
        _check(name, scopes)
        served = _checked_queues(scopes, queues)
        quotas.check()
        if any(key.name == name and key.revoked_at is None for key in await self.all()):
            raise Conflict(f"there is a key named '{name}' already; revoke it first, or choose another name")
        now = self.clock.now()
        secret = secrets.token_hex(32)
        ends = now + _lifetime(expires) if expires is not None else None
        ordered = tuple(scope for scope in GRANTS if scope in scopes)
        key = Key(
            secrets.token_hex(6),
            name,
            digest_of(secret),
            ordered,
            now,
            by,
            ends,
            queues=served,
            quotas=quotas,
        )
        if await self.records.put(KIND, key.id, msgspec.json.encode(key), expected=0) is None:
            return await self.add(name, scopes, expires, by, queues, quotas)  # an id by chance taken
        return key, f"ds_{key.id}_{secret}"

    async def all(self) -> list[Key]:
        """The oldest first."""
        found: list[Key] = []
        while True:
            page = await self.records.page(KIND, found[-1].id if found else "", PAGE)
            found += [_read(record.data) for record in page]
            if len(page) < PAGE:
                return sorted(found, key=lambda key: (key.created_at, key.id))

    async def any(self) -> bool:
        return bool(await self.records.page(KIND, limit=1))

    async def find(self, named: str) -> Key:
        """By its id, or by its name among those that are not revoked."""
        known = await self.all()
        fitting = [key for key in known if key.id == named]
        fitting = fitting or [key for key in known if key.name == named and key.revoked_at is None]
        if len(fitting) > 1:
            raise Conflict(f"{len(fitting)} keys are named '{named}': give the id of one")
        if not fitting:
            raise NotFound(f"there is no key '{named[:MAX_NAME]}' in this store")
        return fitting[0]

    async def revoke(self, id: str) -> Key:
        """At once here; within `ServerSettings.keys_seconds` on every other server. A second time changes nothing."""
        return await self._change(
            id, lambda key: key.revoked_at is None, lambda key: {"revoked_at": self.clock.now()}
        )

    async def set(
        self, id: str, *, queues: Sequence[str] | None = None, quotas: Mapping[str, int | None] | None = None
    ) -> Key:
        """Replaces its queues, and the quotas that are named: None takes the server's default again."""
        changed = read_quotas(dict(quotas or {}))

        def change(key: Key) -> dict[str, Any]:
            wanted = {name: getattr(changed, name) for name in quotas or ()}
            new: dict[str, Any] = {"quotas": msgspec.structs.replace(key.quotas, **wanted)}
            if queues is not None:
                new["queues"] = _checked_queues(key.scopes, queues)
            return new

        return await self._change(id, lambda key: True, change)

    async def touch(self, id: str, at: float) -> None:
        await self._change(
            id, lambda key: key.used_at is None or key.used_at < at, lambda key: {"used_at": at}
        )

    async def _change(
        self, id: str, wanted: Callable[[Key], bool], change: Callable[[Key], dict[str, Any]]
    ) -> Key:
        while True:
            record = await self.records.get(KIND, id)
            if record is None:
                raise NotFound(f"there is no key '{id[:MAX_NAME]}' in this store")
            key = _read(record.data)
            if not wanted(key):
                return key
            changed = msgspec.structs.replace(key, **change(key))
            if await self.records.put(KIND, id, msgspec.json.encode(changed), expected=record.version):
                return changed


def _read(data: bytes) -> Key:
    return msgspec.json.decode(data, type=Key)


def _check(name: str, scopes: Collection[Scope]) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidInput(
            f"a key cannot be named {name[:MAX_NAME]!r}: take up to {MAX_NAME} letters, digits, spaces and . @ : + - _"
        )
    wrong = next((scope for scope in scopes if scope not in GRANTS), None)
    if wrong is not None or not scopes:
        raise InvalidInput(f"a key needs scopes among {', '.join(GRANTS)}; got {wrong or 'none'!r}")


def _checked_queues(scopes: Collection[Scope], queues: Sequence[str] | None) -> tuple[str, ...] | None:
    if "admin" in scopes or "worker" not in scopes:
        if queues:
            who = (
                "an admin key serves every queue"
                if "admin" in scopes
                else "only workers take tasks of queues"
            )
            raise InvalidInput(f"{who}: leave the queues away, or give the scope 'worker' alone")
        return None
    if not queues:
        raise InvalidInput(
            "a key with the scope 'worker' needs the queues whose tasks it may take: name them (--queue images), "
            f"or '{ALL_QUEUES}' for all"
        )
    wrong = next(
        (each for each in queues if not 0 < len(each) <= LONGEST_QUEUE or each == SYSTEM_QUEUE), None
    )
    if wrong is not None:
        raise InvalidInput(f"{wrong[:LONGEST_QUEUE]!r} is not a queue that a key can be for")
    if len(queues) > MOST_QUEUES:
        raise InvalidInput(
            f"a key can name {MOST_QUEUES} queues, not {len(queues)}; '{ALL_QUEUES}' means all"
        )
    return tuple(dict.fromkeys(queues))


def _lifetime(expires: str | float) -> float:
    try:
        seconds = parse_duration(expires)
    except BadDuration as error:
        raise InvalidInput(f"the time until the key expires {error}") from None
    if seconds <= 0:
        raise InvalidInput("a key must be valid for longer than no time: write '30d', or leave it away")
    return seconds
