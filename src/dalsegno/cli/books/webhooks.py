"""Webhooks. Their secrets go in, and only a store that is opened here gives one out, to sign with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from dalsegno.app import App
from dalsegno.cli.books.opening import PAGE, Shelf, all_told, read
from dalsegno.cli.problems import Refusal
from dalsegno.engine.webhooks import Webhook, WebhookBook, missing_workflow
from dalsegno.server.schemas.webhooks import WebhookSetting

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


class Webhooks(Protocol):
    @property
    def url(self) -> str | None:
        """Of the server whose webhooks they are; None: they are those of a store."""

    async def put(self, id: str, setting: WebhookSetting) -> tuple[Webhook, bool, str | None]:
        """Whether it is new, and what to warn of."""

    async def get(self, id: str) -> Webhook: ...

    async def secret(self, webhook: Webhook) -> str: ...

    async def all(self) -> list[Webhook]: ...

    async def remove(self, id: str) -> None: ...


class WebhooksHere:
    url = None

    def __init__(self, app: App) -> None:
        self._book = WebhookBook(app.client.stack.records, app.engine.vault)
        self._clock = app.client.stack.clock
        self._archive = app.client.stack.archive

    async def put(self, id: str, setting: WebhookSetting) -> tuple[Webhook, bool, str | None]:
        self._book.vault.keys.may_make = True  # one person, one machine
        made, is_new = await self._book.put(setting.named(id, self._clock.now()), setting.secret)
        return made, is_new, await missing_workflow(self._archive, made)

    async def get(self, id: str) -> Webhook:
        return await self._book.get(id)

    async def secret(self, webhook: Webhook) -> str:
        return await self._book.secret(webhook)

    async def all(self) -> list[Webhook]:
        found: list[Webhook] = []
        while page := await self._book.page(found[-1].id if found else "", PAGE):
            found += page
        return found

    async def remove(self, id: str) -> None:
        await self._book.remove(id)


class WebhooksThere:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def url(self) -> str | None:
        return self._transport.url

    async def put(self, id: str, setting: WebhookSetting) -> tuple[Webhook, bool, str | None]:
        body = setting.model_dump(mode="json", exclude_none=True)
        told, is_new = await self._transport.put(_path(id), dict[str, Any], body)
        return read(Webhook, told), is_new, told.get("warning")

    async def get(self, id: str) -> Webhook:
        return read(Webhook, await self._transport.get(_path(id), dict[str, Any]))

    async def secret(self, webhook: Webhook) -> str:
        raise Refusal(
            f"a server gives out no secrets, and so not that of the webhook '{webhook.id}'",
            "Give it with --env VARIABLE, or open the store itself with --store.",
        )

    async def all(self) -> list[Webhook]:
        return [read(Webhook, told) for told in await all_told(self._transport, "webhooks")]

    async def remove(self, id: str) -> None:
        await self._transport.send("DELETE", _path(id), Any)


def _path(id: str) -> str:
    return f"webhooks/{quote(id, safe='')}"


WEBHOOKS: Shelf[Webhooks] = Shelf(WebhooksHere, WebhooksThere, makes_store=True)
