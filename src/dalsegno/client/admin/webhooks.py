"""``client.webhooks``: workflows that other systems start by signed requests to a server; ``client.alerts``: alerts
about failed executions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, Unpack
from urllib.parse import quote

from msgspec import Struct

from dalsegno.admin.alerts import Alert, SavedAlert
from dalsegno.admin.webhook_signatures import Signature
from dalsegno.admin.webhooks import SavedWebhook, Webhook, WebhookOptions
from dalsegno.client.group import CallGroup, read_all, read_as
from dalsegno.errors import NotDelivered

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


# -- `client.alerts`: alerts about failed executions ---------------------------------------------------------

Alerts: TypeAlias = list[Alert]


class ClientAlerts(CallGroup):
    """Failure alerts of the server. Changes need the scope ``admin``. Of a receiver only ``target`` is shown."""

    __slots__ = ()

    def put(
        self,
        id: str,
        *,
        url: str | None = None,
        mail: Sequence[str] = (),
        workflow: str | None = None,
        every: float = 60.0,
        enabled: bool = True,
    ) -> SavedAlert:
        """Creates or changes an alert. It is sent to ``url`` or by ``mail``, for one workflow or for all, at most
        once in ``every`` seconds. A new receiver gets a ``secret`` that signs its messages and cannot be read
        again."""
        return self._call(self._put(id, url, mail, workflow, every, enabled))

    async def aput(
        self,
        id: str,
        *,
        url: str | None = None,
        mail: Sequence[str] = (),
        workflow: str | None = None,
        every: float = 60.0,
        enabled: bool = True,
    ) -> SavedAlert:
        return await self._acall(self._put(id, url, mail, workflow, every, enabled))

    def list(self) -> Alerts:
        """Returns all alerts by id."""
        return self._call(self._list())

    async def alist(self) -> Alerts:
        return await self._acall(self._list())

    def get(self, id: str) -> Alert:
        return self._call(self._get(id))

    async def aget(self, id: str) -> Alert:
        return await self._acall(self._get(id))

    def rotate(self, id: str, *, overlap: float | str = "24h") -> str:
        """Returns a new secret. For ``overlap`` (seconds, or text such as ``24h``) the previous one signs as well."""
        return self._call(self._rotate(id, overlap))

    async def arotate(self, id: str, *, overlap: float | str = "24h") -> str:
        return await self._acall(self._rotate(id, overlap))

    def test(self, id: str) -> None:
        """Sends a test message from the server. Raises NotDelivered if the receiver does not accept it."""
        self._call(self._test(id))

    async def atest(self, id: str) -> None:
        await self._acall(self._test(id))

    def remove(self, id: str) -> None:
        """Removes an alert. Failures that it has not reported yet are not reported."""
        self._call(self._remove(id))

    async def aremove(self, id: str) -> None:
        await self._acall(self._remove(id))

    # -- internal ---------------------------------------------------------------------------------------------

    async def _put(
        self,
        id: str,
        url: str | None,
        mail: Sequence[str],
        workflow: str | None,
        every: float,
        enabled: bool,
    ) -> SavedAlert:
        body = {"workflow": workflow, "url": url, "mail": list(mail), "every": every, "enabled": enabled}
        reply, is_new = await self._transport.put(_alert_path(id), dict[str, Any], body)
        return SavedAlert(read_as(Alert, reply), is_new, reply.get("secret"))

    async def _list(self) -> Alerts:
        return await read_all(self._transport, "alerts", Alert)

    async def _get(self, id: str) -> Alert:
        return read_as(Alert, await self._transport.get(_alert_path(id), dict[str, Any]))

    async def _rotate(self, id: str, overlap: float | str) -> str:
        """Never repeated: the first secret would be lost."""
        body = {"overlap": overlap}
        return (await self._transport.send("POST", f"{_alert_path(id)}/secret", _Rotated, body)).secret

    async def _test(self, id: str) -> None:
        done = await self._transport.send("POST", f"{_alert_path(id)}/test", _Tested)
        if not done.delivered:
            raise NotDelivered(done.error or "the receiver did not accept the message")

    async def _remove(self, id: str) -> None:
        await self._transport.send("DELETE", _alert_path(id), Any)


class _Tested(Struct):
    delivered: bool
    error: str | None = None


class _Rotated(Struct):
    secret: str


def _alert_path(id: str) -> str:
    return f"alerts/{quote(id, safe='')}"
