"""API keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from dalsegno.app import App
from dalsegno.cli.books.opening import Shelf, all_told, read
from dalsegno.server.access import Scope
from dalsegno.server.keys import Key, KeyBook

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


class Keys(Protocol):
    async def add(self, name: str, scopes: Sequence[Scope], expires: str | None) -> tuple[Key, str]:
        """The key and its text."""

    async def all(self) -> list[Key]:
        """The oldest first, revoked ones too."""

    async def revoke(self, named: str) -> Key: ...


class KeysHere:
    def __init__(self, app: App) -> None:
        self._book = KeyBook(app.client.stack.records, app.client.stack.clock)

    async def add(self, name: str, scopes: Sequence[Scope], expires: str | None) -> tuple[Key, str]:
        return await self._book.add(name, scopes, expires, by="cli")

    async def all(self) -> list[Key]:
        return await self._book.all()

    async def revoke(self, named: str) -> Key:
        return await self._book.revoke((await self._book.find(named)).id)


class KeysThere:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(self, name: str, scopes: Sequence[Scope], expires: str | None) -> tuple[Key, str]:
        """Never sent twice: a key whose answer got lost is known to nobody."""
        body = {"name": name, "scopes": list(scopes), "expires": expires}
        told = await self._transport.send("POST", "keys", dict[str, Any], body)
        return _key(told), told["key"]

    async def all(self) -> list[Key]:
        found = [_key(told) for told in await all_told(self._transport, "keys", {"revoked": True})]
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def revoke(self, named: str) -> Key:
        path = f"keys/{quote(named, safe='')}"
        return _key(await self._transport.send("DELETE", path, dict[str, Any], repeatable=True))


def _key(told: dict[str, Any]) -> Key:
    return read(Key, {**told, "digest": ""})  # nobody is told that


KEYS: Shelf[Keys] = Shelf(KeysHere, KeysThere)
