"""``client.webhooks``: workflows that other systems start by signed requests to a server."""

from __future__ import annotations

from typing import Any, TypeAlias, Unpack
from urllib.parse import quote

from dalsegno.admin.webhook_signatures import Signature
from dalsegno.admin.webhooks import SavedWebhook, Webhook, WebhookOptions
from dalsegno.client.group import CallGroup, read_all, read_as

Webhooks: TypeAlias = list[Webhook]


class ClientWebhooks(CallGroup):
    """Webhooks of the server. Changes need the scope ``admin``. A server never shows a secret."""

    __slots__ = ()

    def put(self, id: str, workflow: str, **options: Unpack[WebhookOptions]) -> SavedWebhook:
        """Creates or changes a webhook: deliveries to ``/v1/hooks/<path>`` start ``workflow``. Without a ``secret``
        the stored one is kept. ``warning`` says why deliveries are refused, if they are."""
        return self._call(self._put(id, workflow, options))

    async def aput(self, id: str, workflow: str, **options: Unpack[WebhookOptions]) -> SavedWebhook:
        return await self._acall(self._put(id, workflow, options))

    def list(self) -> Webhooks:
        """Returns all webhooks by id."""
        return self._call(self._list())

    async def alist(self) -> Webhooks:
        return await self._acall(self._list())

    def get(self, id: str) -> Webhook:
        return self._call(self._get(id))

    async def aget(self, id: str) -> Webhook:
        return await self._acall(self._get(id))

    def remove(self, id: str) -> None:
        """Removes a webhook and its secret. Deliveries get 404 from now on."""
        self._call(self._remove(id))

    async def aremove(self, id: str) -> None:
        await self._acall(self._remove(id))

    # -- internal ---------------------------------------------------------------------------------------------

    async def _put(self, id: str, workflow: str, options: WebhookOptions) -> SavedWebhook:
        body: dict[str, Any] = {"path": id, **options, "workflow": workflow}
        body["signature"] = _signature(options.get("signature", "github"))
        given = {name: each for name, each in body.items() if each is not None}
        reply, is_new = await self._transport.put(_path(id), dict[str, Any], given)
        return SavedWebhook(read_as(Webhook, reply), is_new, reply.get("warning"))

    async def _list(self) -> Webhooks:
        return await read_all(self._transport, "webhooks", Webhook)

    async def _get(self, id: str) -> Webhook:
        return read_as(Webhook, await self._transport.get(_path(id), dict[str, Any]))

    async def _remove(self, id: str) -> None:
        await self._transport.send("DELETE", _path(id), Any)


def _signature(given: str | Signature) -> dict[str, Any]:
    """Return the body's field. A style without details uses its own header names."""
    if isinstance(given, str):
        return {"style": given}
    fields = {
        "style": given.style,
        "header": given.header or None,
        "prefix": given.prefix if given.header else None,
        "timestamp": given.timestamp or None,
        "tolerance": given.tolerance,
    }
    return {name: each for name, each in fields.items() if each is not None}


def _path(id: str) -> str:
    return f"webhooks/{quote(id, safe='')}"
