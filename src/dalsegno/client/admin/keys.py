"""``client.keys``: the API keys of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from dalsegno.admin.keys import Key, NewKey, Scope
from dalsegno.client.group import CallGroup, read_all, read_as

Keys: TypeAlias = list[Key]
QuotaChanges: TypeAlias = Mapping[str, int | None]
"""Quotas by name: ``{"starts_per_minute": 600}``. None: the server's default; 0: no limit."""


class ClientKeys(CallGroup):
    """API keys of the server. All calls need the scope ``admin``. A key's ``digest`` is empty: a server does not
    return it."""

    __slots__ = ()

    def add(
        self,
        name: str,
        scopes: Sequence[Scope] = ("run",),
        *,
        expires: str | None = None,
        queues: Sequence[str] | None = None,
        quotas: QuotaChanges | None = None,
    ) -> NewKey:
        """Returns a new key and its text, which cannot be read again. ``expires``: its lifetime, such as ``30d``. A
        key for remote workers names the queues whose tasks it may claim, or ``*``."""
        return self._call(self._add(name, scopes, expires, queues, quotas))

    async def aadd(
        self,
        name: str,
        scopes: Sequence[Scope] = ("run",),
        *,
        expires: str | None = None,
        queues: Sequence[str] | None = None,
        quotas: QuotaChanges | None = None,
    ) -> NewKey:
        return await self._acall(self._add(name, scopes, expires, queues, quotas))

    def set(
        self, key: str, *, queues: Sequence[str] | None = None, quotas: QuotaChanges | None = None
    ) -> Key:
        """Replaces the queues, and the named quotas, of the key with this id or name."""
        return self._call(self._set(key, queues, quotas))

    async def aset(
        self, key: str, *, queues: Sequence[str] | None = None, quotas: QuotaChanges | None = None
    ) -> Key:
        return await self._acall(self._set(key, queues, quotas))

    def list(self, *, revoked: bool = False) -> Keys:
        """Returns the keys, oldest first; with ``revoked`` also the revoked ones."""
        return self._call(self._list(revoked))

    async def alist(self, *, revoked: bool = False) -> Keys:
        return await self._acall(self._list(revoked))

    def revoke(self, key: str) -> Key:
        """Revokes a key by its id or name. Every server of the store refuses it within seconds."""
        return self._call(self._revoke(key))

    async def arevoke(self, key: str) -> Key:
        return await self._acall(self._revoke(key))

    # -- internal ---------------------------------------------------------------------------------------------

    async def _add(
        self,
        name: str,
        scopes: Sequence[Scope],
        expires: str | None,
        queues: Sequence[str] | None,
        quotas: QuotaChanges | None,
    ) -> NewKey:
        """Never repeated: the text of the first key would be lost."""
        body = {"name": name, "scopes": list(scopes), "expires": expires, **_limits(queues, quotas)}
        reply = await self._transport.send("POST", "keys", dict[str, Any], body)
        return NewKey(_key(reply), reply["key"])

    async def _set(self, key: str, queues: Sequence[str] | None, quotas: QuotaChanges | None) -> Key:
        body = _limits(queues, quotas)
        return _key(await self._transport.send("PATCH", _path(key), dict[str, Any], body, repeatable=True))

    async def _list(self, revoked: bool) -> Keys:
        found = await read_all(self._transport, "keys", dict[str, Any], {"revoked": revoked})
        return sorted(map(_key, found), key=lambda key: (key.created_at, key.id))

    async def _revoke(self, key: str) -> Key:
        return _key(await self._transport.send("DELETE", _path(key), dict[str, Any], repeatable=True))


def _limits(queues: Sequence[str] | None, quotas: QuotaChanges | None) -> dict[str, Any]:
    """Return only the given fields: an older server does not know the others."""
    named = {"queues": list(queues)} if queues is not None else {}
    return {**named, **({"quotas": dict(quotas)} if quotas else {})}


def _key(reply: Mapping[str, Any]) -> Key:
    return read_as(Key, {**reply, "digest": ""})


def _path(key: str) -> str:
    return f"keys/{quote(key, safe='')}"
