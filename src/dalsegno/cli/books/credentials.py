"""Credentials. Their values go in, and never come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from dalsegno.app import App
from dalsegno.cli.books.opening import PAGE, Shelf, all_told, read
from dalsegno.cli.credentials import say_made
from dalsegno.engine.secrets import CredentialInfo, NewCredential, Rotation
from dalsegno.server.webhooks import WebhookBook

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


class Credentials(Protocol):
    async def put(self, new: NewCredential) -> tuple[CredentialInfo, bool]:
        """Whether it is new."""

    async def all(self) -> list[CredentialInfo]: ...

    async def remove(self, name: str) -> None: ...

    async def rotate(self) -> Rotation: ...


class CredentialsHere:
    def __init__(self, app: App) -> None:
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


def _path(name: str) -> str:
    return f"credentials/{quote(name, safe='')}"


CREDENTIALS: Shelf[Credentials] = Shelf(CredentialsHere, CredentialsThere)
