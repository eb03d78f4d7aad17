"""API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from dalsegno.app import App
from dalsegno.cli.books.opening import Shelf, all_told, read
from dalsegno.server.access import Scope
from dalsegno.server.keys import Key, KeyBook
from dalsegno.server.quotas import read_quotas

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


@dataclass(frozen=True, slots=True)
class KeyWish:
    """What a key is to be like, beside its name. Of quotas, those that are named; None: the server's default."""

    scopes: Sequence[Scope] = ()
    expires: str | None = None
    queues: Sequence[str] | None = None
    quotas: Mapping[str, int | None] = field(default_factory=dict)


class Keys(Protocol):
    async def add(self, name: str, wish: KeyWish) -> tuple[Key, str]:
        """The key and its text."""

    async def set(self, named: str, wish: KeyWish) -> Key:
        """Changes queues and quotas."""

    async def all(self) -> list[Key]:
        """The oldest first, revoked ones too."""

    async def revoke(self, named: str) -> Key: ...


class KeysHere:
    def __init__(self, app: App) -> None:
        self._book = KeyBook(app.client.stack.records, app.client.stack.clock)

    async def add(self, name: str, wish: KeyWish) -> tuple[Key, str]:
        quotas = read_quotas(dict(wish.quotas))
        return await self._book.add(name, wish.scopes, wish.expires, "cli", wish.queues, quotas)

    async def set(self, named: str, wish: KeyWish) -> Key:
        found = await self._book.find(named)
        return await self._book.set(found.id, queues=wish.queues, quotas=wish.quotas)

    async def all(self) -> list[Key]:
        return await self._book.all()

    async def revoke(self, named: str) -> Key:
        return await self._book.revoke((await self._book.find(named)).id)


class KeysThere:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(self, name: str, wish: KeyWish) -> tuple[Key, str]:
        """Never sent twice: a key whose answer got lost is known to nobody."""
        body = {"name": name, "scopes": list(wish.scopes), "expires": wish.expires, **_limits(wish)}
        told = await self._transport.send("POST", "keys", dict[str, Any], body)
        return _key(told), told["key"]

    async def set(self, named: str, wish: KeyWish) -> Key:
        path = f"keys/{quote(named, safe='')}"
        return _key(await self._transport.send("PATCH", path, dict[str, Any], _limits(wish), repeatable=True))

    async def all(self) -> list[Key]:
        found = [_key(told) for told in await all_told(self._transport, "keys", {"revoked": True})]
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def revoke(self, named: str) -> Key:
        path = f"keys/{quote(named, safe='')}"
        return _key(await self._transport.send("DELETE", path, dict[str, Any], repeatable=True))


def _limits(wish: KeyWish) -> dict[str, Any]:
    """What a server of an earlier version does not know is sent only where it is wanted."""
    queues = {"queues": list(wish.queues)} if wish.queues is not None else {}
    return {**queues, **({"quotas": dict(wish.quotas)} if wish.quotas else {})}


def _key(told: dict[str, Any]) -> Key:
    return read(Key, {**told, "digest": ""})  # nobody is told that


KEYS: Shelf[Keys] = Shelf(KeysHere, KeysThere)
