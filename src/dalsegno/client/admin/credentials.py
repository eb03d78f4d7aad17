"""``client.credentials`` and ``client.protected_names``: secrets that workflows use by name, the definitions that
may use them, and the names under which only admins deploy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from dalsegno.client.group import CallGroup, read_all, read_as
from dalsegno.client.schemas import maybe_seconds
from dalsegno.engine.secrets import CredentialInfo, Rotation
from dalsegno.engine.secrets.credentials import SavedCredential
from dalsegno.engine.secrets.definition_approvals import (
    ApprovedDefinition,
    DefinitionApproval,
    DefinitionList,
    ListedDefinition,
    ProtectedName,
)
from dalsegno.errors import NotFound

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
        return self._call(self._put(name, type, fields, workflows, hosts, sent_as, description, adoptable))

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
        put = self._put(name, type, fields, workflows, hosts, sent_as, description, adoptable)
        return await self._acall(put)

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

    async def _put(
        self,
        name: str,
        type: str,
        fields: Mapping[str, str] | None,
        workflows: Sequence[str],
        hosts: Sequence[str],
        sent_as: str,
        description: str,
        adoptable: bool,
    ) -> SavedCredential:
        body = {
            "type": type,
            "fields": dict(fields) if fields is not None else None,
            "hosts": list(hosts),
            "workflows": list(workflows),
            "sent_as": sent_as,
            "description": description,
            "adoptable": adoptable,
        }
        reply, is_new = await self._transport.put(_path(name), dict[str, Any], body)
        return SavedCredential(read_as(CredentialInfo, reply), is_new)

    async def _list(self) -> Credentials:
        return await read_all(self._transport, "credentials", CredentialInfo)

    async def _get(self, name: str) -> CredentialInfo:
        return read_as(CredentialInfo, await self._transport.get(_path(name), dict[str, Any]))

    async def _remove(self, name: str) -> None:
        await self._transport.send("DELETE", _path(name), Any)

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


def _path(name: str) -> str:
    return f"credentials/{quote(name, safe='')}"


def _protected_path(name: str) -> str:
    return f"protected-names/{quote(name, safe='')}"
