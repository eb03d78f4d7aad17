"""API keys and their quotas. A key is shown once, stored as a hash, and kept after it is revoked.

A key is ``ds_<id>_<secret>``. The secret is 32 random bytes, so a plain SHA-256 of it cannot be inverted by
guessing. The record of a revoked key stays: a store that ever had a key never counts as open again.
Quotas limit starts and bytes per minute, open streams, and stored executions. `server.auth.quotas` enforces them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records

HIGHEST = 10**12
"""Upper bound of a quota."""


class Quotas(Struct, frozen=True, omit_defaults=True):
    """Quotas of one key, or a server's defaults. None: the default (of a server: no limit); 0: no limit."""

    starts_per_minute: int | None = None
    bytes_per_minute: int | None = None
    open_streams: int | None = None
    stored_executions: int | None = None

    def over(self, defaults: Quotas) -> Quotas:
        """Return these quotas, with ``defaults`` for those that are not set."""
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(defaults, **own) if own else defaults

    def check(self) -> None:
        """Raise InvalidInput if a value is out of range."""
        for name, value in msgspec.structs.asdict(self).items():
            if value is not None and not 0 <= value <= HIGHEST:
                raise InvalidInput(f"a quota is a number from 0 (no limit) to {HIGHEST:,}; {name} is {value}")


NO_QUOTAS = Quotas()
NAMES: tuple[str, ...] = Quotas.__struct_fields__


def read_quotas(given: dict[str, Any]) -> Quotas:
    """Return quotas from names and numbers. Raises InvalidInput."""
    wrong = next((name for name in given if name not in NAMES), None)
    if wrong is not None:
        raise InvalidInput(f"there is no quota '{wrong[:100]}'; there are {', '.join(NAMES)}")
    quotas = Quotas(**given)
    quotas.check()
    return quotas


Scope = Literal["read", "run", "admin", "worker"]

GRANTS: dict[Scope, frozenset[Scope]] = {
    "read": frozenset(("read",)),
    "run": frozenset(("read", "run")),
    "worker": frozenset(("worker",)),
    "admin": frozenset(("read", "run", "admin", "worker")),
}
"""The scopes that a scope includes."""

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
    """A key as it is stored, without its secret."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_at: float
    created_by: str = ""
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None
    """Last use, with a resolution of a minute."""
    queues: tuple[str, ...] | None = None
    """Queues whose tasks a remote worker may claim with it; None: all, for keys created before queues were named."""
    quotas: Quotas = NO_QUOTAS

    @property
    def serves_all(self) -> bool:
        """Whether a remote worker may claim from every queue because the key names none."""
        return self.queues is None and "worker" in self.scopes and "admin" not in self.scopes

    @property
    def served_queues(self) -> frozenset[str] | None:
        """Queues whose tasks a remote worker may claim with it; None: all queues."""
        return None if self.queues is None or ALL_QUEUES in self.queues else frozenset(self.queues)

    @property
    def grants(self) -> frozenset[Scope]:
        return frozenset[Scope]().union(*(GRANTS[scope] for scope in self.scopes))

    def why_not(self, now: float) -> str | None:
        """Return why the key is not valid at this time, as a half sentence; None if it is."""
        if self.revoked_at is not None:
            return "was revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "has expired"
        return None


class NewKey(NamedTuple):
    key: Key
    text: str
    """The text that callers send. It is not stored."""


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_NO_DIGEST = digest_of("")


def read_key(text: str) -> tuple[str, str] | None:
    """Return id and secret; None if the text is not formed like a key."""
    found = _TEXT.fullmatch(text)
    return (found[1], found[2]) if found is not None else None


def is_secret_of(key: Key | None, secret: str) -> bool:
    """Compare in constant time, which is the same for a key that does not exist."""
    return hmac.compare_digest(digest_of(secret), key.digest if key is not None else _NO_DIGEST)


class KeyRecords:
    """Creates, lists and revokes keys in a store."""

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
    ) -> NewKey:
        """Return the key and its text, which cannot be read again. ``queues``: queues whose tasks it may claim; a
        key for remote workers must name them, or ``*``."""
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
            return await self.add(
                name, scopes, expires, by, queues, quotas
            )  # the random id is already in use
        return NewKey(key, f"ds_{key.id}_{secret}")

    async def all(self) -> list[Key]:
        """Return all keys, oldest first."""
        found: list[Key] = []
        while True:
            page = await self.records.page(KIND, found[-1].id if found else "", PAGE)
            found += [_read(record.data) for record in page]
            if len(page) < PAGE:
                return sorted(found, key=lambda key: (key.created_at, key.id))

    async def any(self) -> bool:
        return bool(await self.records.page(KIND, limit=1))

    async def find(self, named: str) -> Key:
        """Return a key by its id, or by its name among the keys that are not revoked."""
        known = await self.all()
        fitting = [key for key in known if key.id == named]
        fitting = fitting or [key for key in known if key.name == named and key.revoked_at is None]
        if len(fitting) > 1:
            raise Conflict(f"{len(fitting)} keys are named '{named}': give the id of one")
        if not fitting:
            raise NotFound(f"there is no key '{named[:MAX_NAME]}' in this store")
        return fitting[0]

    async def revoke(self, id: str) -> Key:
        """Revoke a key: at once in this process, within `ServerSettings.keys_seconds` on every other server.
        Repeating it changes nothing."""
        return await self._change(
            id, lambda key: key.revoked_at is None, lambda key: {"revoked_at": self.clock.now()}
        )

    async def set(
        self, id: str, *, queues: Sequence[str] | None = None, quotas: Mapping[str, int | None] | None = None
    ) -> Key:
        """Replace its queues, and the named quotas: None restores the server's default."""
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
            raise InvalidInput(f"{who}: omit the queues, or give the scope 'worker' alone")
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
        raise InvalidInput("a key must be valid for longer than 0 seconds: write '30d', or omit it")
    return seconds
