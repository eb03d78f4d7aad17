"""Access to a server: API keys, credentials, protected names, and the deployed workflows that use them.

- ``client.keys``: the API keys of a server.
- ``client.credentials`` and ``client.protected_names``: secrets that workflows use by name, the definitions that may
  use them, and the names under which only admins deploy.
- ``client.definitions``: deployed workflows, their versions and aliases.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from dalsegno.admin.keys import Key, NewKey, Scope
from dalsegno.client.archive import ServerArchive
from dalsegno.client.group import CallGroup, read_all, read_as
from dalsegno.client.schemas import maybe_seconds
from dalsegno.engine.secrets import CredentialInfo, NewCredential, Rotation
from dalsegno.engine.secrets.credentials import SavedCredential
from dalsegno.engine.secrets.definition_approvals import (
    ApprovedDefinition,
    DefinitionApproval,
    DefinitionList,
    ListedDefinition,
    ProtectedName,
)
from dalsegno.errors import NotFound
from dalsegno.model.definition import Definition, Version, no_such_version

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


# -- credentials ---------------------------------------------------------------------------------------------

Credentials: TypeAlias = list[CredentialInfo]
ProtectedNames: TypeAlias = list[ProtectedName]


class ClientCredentials(CallGroup):
    """Credentials of the server. Changes need the scope ``admin``. A server never shows a value."""

    __slots__ = ()

    def put(
        self,
        name: str,
        type: str = "bearer",
        fields: Mapping[str, str] | None = None,
        *,
        workflows: Sequence[str],
        hosts: Sequence[str] = (),
        sent_as: str = "",
        description: str = "",
        adoptable: bool = False,
    ) -> SavedCredential:
        """Creates or changes a credential. ``fields``: its values (``{"token": …}`` for the type ``bearer``);
        without them the stored ones are kept. ``workflows``: names or patterns of workflows that may use it;
        ``hosts``: hosts to which the ``http`` node may send it; ``adoptable``: definitions that messages of other
        programs carry may use it, too."""
        new = NewCredential(name, type, fields, hosts, workflows, sent_as, description, adoptable)
        return self._call(self._put(new))

    async def aput(
        self,
        name: str,
        type: str = "bearer",
        fields: Mapping[str, str] | None = None,
        *,
        workflows: Sequence[str],
        hosts: Sequence[str] = (),
        sent_as: str = "",
        description: str = "",
        adoptable: bool = False,
    ) -> SavedCredential:
        new = NewCredential(name, type, fields, hosts, workflows, sent_as, description, adoptable)
        return await self._acall(self._put(new))

    def list(self) -> Credentials:
        """Returns all credentials by name."""
        return self._call(self._list())

    async def alist(self) -> Credentials:
        return await self._acall(self._list())

    def get(self, name: str) -> CredentialInfo:
        return self._call(self._get(name))

    async def aget(self, name: str) -> CredentialInfo:
        return await self._acall(self._get(name))

    def remove(self, name: str) -> None:
        """Removes a credential. Runs that need it fail from now on."""
        self._call(self._remove(name))

    async def aremove(self, name: str) -> None:
        await self._acall(self._remove(name))

    def rotate(self) -> Rotation:
        """Seals every credential again with the server's first secret key. It may be interrupted and repeated."""
        return self._call(self._rotate())

    async def arotate(self) -> Rotation:
        return await self._acall(self._rotate())

    def definitions(self) -> DefinitionList:
        """Returns the definitions whose names a credential lists; those without ``approval`` cannot use it."""
        return self._call(self._definitions())

    async def adefinitions(self) -> DefinitionList:
        return await self._acall(self._definitions())

    def approve(self, hash: str) -> ApprovedDefinition:
        """Lets the definition with this content hash use the credentials that list its name."""
        return self._call(self._approve(hash))

    async def aapprove(self, hash: str) -> ApprovedDefinition:
        return await self._acall(self._approve(hash))

    def withdraw(self, hash: str) -> None:
        """Withdraws the approval: runs of the definition get none of these credentials from now on."""
        self._call(self._withdraw(hash))

    async def awithdraw(self, hash: str) -> None:
        await self._acall(self._withdraw(hash))

    def end_grace(self) -> None:
        """Requires an approval of every definition from now on, also of those older than approvals."""
        self._call(self._end_grace())

    async def aend_grace(self) -> None:
        await self._acall(self._end_grace())

    # -- internal ---------------------------------------------------------------------------------------------

    async def _put(self, new: NewCredential) -> SavedCredential:
        body = {
            "type": new.type,
            "fields": dict(new.fields) if new.fields is not None else None,
            "hosts": list(new.hosts),
            "workflows": list(new.workflows),
            "sent_as": new.sent_as,
            "description": new.description,
            "adoptable": new.adoptable,
        }
        reply, is_new = await self._transport.put(_credential_path(new.name), dict[str, Any], body)
        return SavedCredential(read_as(CredentialInfo, reply), is_new)

    async def _list(self) -> Credentials:
        return await read_all(self._transport, "credentials", CredentialInfo)

    async def _get(self, name: str) -> CredentialInfo:
        return read_as(CredentialInfo, await self._transport.get(_credential_path(name), dict[str, Any]))

    async def _remove(self, name: str) -> None:
        await self._transport.send("DELETE", _credential_path(name), Any)

    async def _rotate(self) -> Rotation:
        return await self._transport.send("POST", "credentials/rotate", Rotation, repeatable=True)

    async def _definitions(self) -> DefinitionList:
        """Return an empty list for a server older than approvals."""
        try:
            found = await self._transport.get("definition-approvals", _DefinitionsReply)
        except NotFound:
            return DefinitionList(())
        return DefinitionList(tuple(each.listed() for each in found.items), maybe_seconds(found.grace_until))

    async def _approve(self, hash: str) -> ApprovedDefinition:
        return await self._transport.send(
            "PUT", f"definition-approvals/{quote(hash, safe='')}", ApprovedDefinition, repeatable=True
        )

    async def _withdraw(self, hash: str) -> None:
        await self._transport.send("DELETE", f"definition-approvals/{quote(hash, safe='')}", Any)

    async def _end_grace(self) -> None:
        await self._transport.send("DELETE", "definition-approvals/grace", Any)


class ClientProtectedNames(CallGroup):
    """Names under which only admins deploy. Changes need the scope ``admin``."""

    __slots__ = ()

    def list(self) -> ProtectedNames:
        """Returns the names that admins protect, and those that credentials list."""
        return self._call(self._list())

    async def alist(self) -> ProtectedNames:
        return await self._acall(self._list())

    def protect(self, name: str) -> ProtectedName:
        """Protects a name (or pattern, such as ``billing-*``): only keys with the scope ``admin`` deploy under it
        from now on."""
        return self._call(self._protect(name))

    async def aprotect(self, name: str) -> ProtectedName:
        return await self._acall(self._protect(name))

    def unprotect(self, name: str) -> None:
        """Ends the protection by an admin. Raises NotFound if there is none."""
        self._call(self._unprotect(name))

    async def aunprotect(self, name: str) -> None:
        await self._acall(self._unprotect(name))

    # -- internal ---------------------------------------------------------------------------------------------

    async def _list(self) -> ProtectedNames:
        reply = await self._transport.get("protected-names", dict[str, Any])
        return [read_as(ProtectedName, each) for each in reply["items"]]

    async def _protect(self, name: str) -> ProtectedName:
        path = _protected_path(name)
        return read_as(
            ProtectedName, await self._transport.send("PUT", path, dict[str, Any], repeatable=True)
        )

    async def _unprotect(self, name: str) -> None:
        await self._transport.send("DELETE", _protected_path(name), Any)


class _ListedReply(Struct):
    workflow: str
    version: int
    hash: str
    credentials: tuple[str, ...]
    approved: bool
    approved_by: str | None = None
    approved_at: datetime | None = None

    def listed(self) -> ListedDefinition:
        approval = (
            DefinitionApproval(
                (self.workflow,), self.approved_by or "", maybe_seconds(self.approved_at) or 0.0
            )
            if self.approved
            else None
        )
        return ListedDefinition(self.workflow, self.version, self.hash, self.credentials, approval)


class _DefinitionsReply(Struct):
    items: list[_ListedReply]
    grace_until: datetime | None = None


def _credential_path(name: str) -> str:
    return f"credentials/{quote(name, safe='')}"


def _protected_path(name: str) -> str:
    return f"protected-names/{quote(name, safe='')}"


# -- `client.definitions`: deployed workflows, their versions and aliases ------------------------------------

Definitions: TypeAlias = list[Definition]


class ClientDefinitions(CallGroup):
    """Definitions of the server; ``client.deploy`` and ``client.deploy_script`` store them."""

    __slots__ = ()

    def list(self) -> Definitions:
        """Returns the current version of every workflow by name, without its stored form."""
        return self._call(self._list())

    async def alist(self) -> Definitions:
        return await self._acall(self._list())

    def get(self, name: str, version: Version = None) -> Definition:
        """Returns one version with its stored form: a number, an alias, or the current one. Raises NotFound if
        there is none."""
        return self._call(self._get(name, version))

    async def aget(self, name: str, version: Version = None) -> Definition:
        return await self._acall(self._get(name, version))

    def versions(self, name: str, limit: int | None = None) -> Definitions:
        """Returns versions, newest first, without their stored form; none if the name is unknown."""
        return self._call(self._archive().versions(name, limit))

    async def aversions(self, name: str, limit: int | None = None) -> Definitions:
        return await self._acall(self._archive().versions(name, limit))

    def aliases(self, name: str) -> dict[str, int]:
        """Returns the version of each alias."""
        return self._call(self._archive().aliases(name))

    async def aaliases(self, name: str) -> dict[str, int]:
        return await self._acall(self._archive().aliases(name))

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Sets an alias to this version."""
        self._call(self._archive().set_alias(name, alias, version))

    async def aset_alias(self, name: str, alias: str, version: int) -> None:
        await self._acall(self._archive().set_alias(name, alias, version))

    def remove_alias(self, name: str, alias: str) -> None:
        """Removes an alias. Raises NotFound if there is none. Executions that were started with it continue."""
        self._call(self._remove_alias(name, alias))

    async def aremove_alias(self, name: str, alias: str) -> None:
        await self._acall(self._remove_alias(name, alias))

    # -- internal ---------------------------------------------------------------------------------------------

    async def _list(self) -> Definitions:
        return await self._archive().definitions(limit=sys.maxsize)

    async def _get(self, name: str, version: Version) -> Definition:
        found = await self._archive().definition(name, version)
        if found is None:
            raise NotFound(no_such_version(name, version))
        return found

    async def _remove_alias(self, name: str, alias: str) -> None:
        path = f"definitions/{quote(name, safe='')}/aliases/{quote(alias, safe='')}"
        await self._transport.send("DELETE", path, Any)

    def _archive(self) -> ServerArchive:
        return ServerArchive(self._transport)
