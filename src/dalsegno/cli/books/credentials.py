"""Credentials. Their values go in, and never come out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from msgspec import Struct

from dalsegno.app import App
from dalsegno.cli.books.opening import PAGE, Shelf, all_told, read
from dalsegno.cli.credentials import say_made
from dalsegno.cli.output import iso
from dalsegno.client.archive import ServerArchive
from dalsegno.engine.secrets import CredentialInfo, NewCredential, Rotation
from dalsegno.engine.secrets.definition_approvals import STORE, ProtectedName
from dalsegno.engine.webhooks import WebhookBook
from dalsegno.errors import NotFound
from dalsegno.model.definition import Definition, Version, parse_target

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


class Credentials(Protocol):
    async def put(self, new: NewCredential) -> tuple[CredentialInfo, bool]:
        """Whether it is new."""

    async def all(self) -> list[CredentialInfo]: ...

    async def remove(self, name: str) -> None: ...

    async def rotate(self) -> Rotation: ...

    async def listed(self) -> Listing: ...

    async def hash_of(self, workflow: str) -> str:
        """The content hash of ``name``, ``name@3`` or ``name@stable``; raises NotFound."""

    async def approve(self, hash: str) -> Approved: ...

    async def withdraw(self, hash: str) -> None: ...

    async def end_grace(self) -> None: ...

    async def protected_names(self) -> list[ProtectedName]: ...

    async def protect(self, name: str) -> ProtectedName: ...

    async def unprotect(self, name: str) -> None:
        """Raises NotFound."""


class Listed(Struct):
    """A definition that credentials list by name."""

    workflow: str
    version: int
    hash: str
    credentials: list[str]
    approved: bool
    approved_by: str | None = None
    approved_at: str | None = None


class Listing(Struct):
    items: list[Listed]
    grace_until: str | None = None


class Approved(Struct):
    workflow: str
    version: int
    hash: str


class CredentialsHere:
    def __init__(self, app: App) -> None:
        self._client = app.client
        self._vault = app.engine.vault
        self._webhooks = WebhookBook(app.client.stack.records, self._vault)

    async def put(self, new: NewCredential) -> tuple[CredentialInfo, bool]:
        self._vault.keys.may_make = True  # one person, one machine
        stored = await self._vault.put(new)
        say_made(self._vault)
        return stored

    async def all(self) -> list[CredentialInfo]:
        found: list[CredentialInfo] = []
        while page := await self._vault.page(found[-1].name if found else "", PAGE):
            found += page
        return found

    async def remove(self, name: str) -> None:
        await self._webhooks.remove_credential(name)

    async def rotate(self) -> Rotation:
        return await self._vault.rotate()

    async def listed(self) -> Listing:
        approvals = self._client.definition_approvals
        grace = await approvals.grace()
        items = [
            Listed(
                each.workflow,
                each.version,
                each.hash,
                list(each.credentials),
                each.approval is not None,
                each.approval.by if each.approval is not None else None,
                iso(each.approval.at) if each.approval is not None else None,
            )
            for each in await approvals.listed()
        ]
        return Listing(items, iso(grace.until) if grace is not None and grace.until else None)

    async def hash_of(self, workflow: str) -> str:
        return await _hash_of(self._client.stack.archive.definition, workflow)

    async def approve(self, hash: str) -> Approved:
        found = await self._client.approve_definition(hash)
        return Approved(found.name, found.version, found.hash)

    async def withdraw(self, hash: str) -> None:
        await self._client.withdraw_approval(hash)

    async def end_grace(self) -> None:
        await self._client.definition_approvals.end_grace()

    async def protected_names(self) -> list[ProtectedName]:
        return await self._vault.protected_names.all()

    async def protect(self, name: str) -> ProtectedName:
        return await self._vault.protected_names.protect(name, STORE)

    async def unprotect(self, name: str) -> None:
        if not await self._vault.protected_names.unprotect(name):
            raise NotFound(f"no admin protects the name '{name}'")


class CredentialsThere:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def put(self, new: NewCredential) -> tuple[CredentialInfo, bool]:
        body = {
            "type": new.type,
            "fields": dict(new.fields) if new.fields is not None else None,
            "hosts": list(new.hosts),
            "workflows": list(new.workflows),
            "sent_as": new.sent_as,
            "description": new.description,
        }
        told, is_new = await self._transport.put(_path(new.name), dict[str, Any], body)
        return read(CredentialInfo, told), is_new

    async def all(self) -> list[CredentialInfo]:
        return [read(CredentialInfo, told) for told in await all_told(self._transport, "credentials")]

    async def remove(self, name: str) -> None:
        await self._transport.send("DELETE", _path(name), Any)

    async def rotate(self) -> Rotation:
        return await self._transport.send("POST", "credentials/rotate", Rotation, repeatable=True)

    async def listed(self) -> Listing:
        try:
            found = await self._transport.get("definition-approvals", Listing)
        except NotFound:
            return Listing([])  # a server from before approvals
        for each in found.items:
            each.approved_at = _local(each.approved_at)
        return Listing(found.items, _local(found.grace_until))

    async def hash_of(self, workflow: str) -> str:
        return await _hash_of(ServerArchive(self._transport).definition, workflow)

    async def approve(self, hash: str) -> Approved:
        return await self._transport.send("PUT", f"definition-approvals/{hash}", Approved, repeatable=True)

    async def withdraw(self, hash: str) -> None:
        await self._transport.send("DELETE", f"definition-approvals/{hash}", Any)

    async def end_grace(self) -> None:
        await self._transport.send("DELETE", "definition-approvals/grace", Any)

    async def protected_names(self) -> list[ProtectedName]:
        told = await self._transport.get("protected-names", dict[str, Any])
        return [read(ProtectedName, each) for each in told["items"]]

    async def protect(self, name: str) -> ProtectedName:
        told = await self._transport.send("PUT", _protected_path(name), dict[str, Any], repeatable=True)
        return read(ProtectedName, told)

    async def unprotect(self, name: str) -> None:
        await self._transport.send("DELETE", _protected_path(name), Any)


async def _hash_of(find: Callable[[str, Version], Awaitable[Definition | None]], workflow: str) -> str:
    name, version = parse_target(workflow)
    found = await find(name, version)
    if found is None:
        raise NotFound(f"no workflow '{workflow}' is deployed here; `dalsegno versions NAME` lists versions")
    return found.hash


def _protected_path(name: str) -> str:
    return f"protected-names/{quote(name, safe='')}"


def _local(moment: str | None) -> str | None:
    """As commands show it."""
    return iso(datetime.fromisoformat(moment).timestamp()) if moment is not None else None


def _path(name: str) -> str:
    return f"credentials/{quote(name, safe='')}"


CREDENTIALS: Shelf[Credentials] = Shelf(CredentialsHere, CredentialsThere)
