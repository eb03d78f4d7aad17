"""Failure alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from msgspec import Struct, structs

from dalsegno.app import App
from dalsegno.cli.books.opening import PAGE, Shelf, all_told, read
from dalsegno.errors import NotDelivered
from dalsegno.server.alerting import Alerting
from dalsegno.server.alerts import Alert, AlertBook, SavedAlert
from dalsegno.server.office import Office
from dalsegno.server.settings import ServerSettings

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


class Alerts(Protocol):
    async def put(self, new: Alert, url: str | None) -> SavedAlert: ...

    async def rotate(self, id: str, overlap: float) -> str:
        """The new secret."""

    async def all(self) -> list[Alert]: ...

    async def remove(self, id: str) -> None: ...

    async def test(self, id: str) -> None:
        """Sends a message: from here, or from the server. Raises NotDelivered."""


class AlertsHere:
    def __init__(self, app: App) -> None:
        self._app = app
        self._book = AlertBook(app.client.stack.records, app.engine.vault)

    async def put(self, new: Alert, url: str | None) -> SavedAlert:
        self._book.vault.keys.may_make = True  # one person, one machine
        now = self._app.client.stack.clock.now()
        return await self._book.put(structs.replace(new, created_at=now), url)

    async def rotate(self, id: str, overlap: float) -> str:
        return await self._book.rotate(id, overlap, self._app.client.stack.clock.now())

    async def all(self) -> list[Alert]:
        found: list[Alert] = []
        while page := await self._book.page(found[-1].id if found else "", PAGE):
            found += page
        return found

    async def remove(self, id: str) -> None:
        await self._book.remove(id)

    async def test(self, id: str) -> None:
        await Alerting(Office(self._app, ServerSettings())).test(await self._book.get(id))


class _Tested(Struct):
    delivered: bool
    error: str | None = None


class _Rotated(Struct):
    secret: str


class AlertsThere:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def put(self, new: Alert, url: str | None) -> SavedAlert:
        body = {"workflow": new.workflow, "url": url, "mail": list(new.mail), "every": new.every}
        told, is_new = await self._transport.put(_path(new.id), dict[str, Any], body)
        return SavedAlert(read(Alert, told), is_new, told.get("secret"))

    async def rotate(self, id: str, overlap: float) -> str:
        done = await self._transport.send("POST", f"{_path(id)}/secret", _Rotated, {"overlap": overlap})
        return done.secret

    async def all(self) -> list[Alert]:
        return [read(Alert, told) for told in await all_told(self._transport, "alerts")]

    async def remove(self, id: str) -> None:
        await self._transport.send("DELETE", _path(id), Any)

    async def test(self, id: str) -> None:
        done = await self._transport.send("POST", f"{_path(id)}/test", _Tested)
        if not done.delivered:
            raise NotDelivered(done.error or "the message was not taken")


def _path(id: str) -> str:
    return f"alerts/{quote(id, safe='')}"


ALERTS: Shelf[Alerts] = Shelf(AlertsHere, AlertsThere, makes_store=True)
