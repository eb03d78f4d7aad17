"""``client.alerts``: alerts about failed executions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from dalsegno.admin.alerts import Alert, SavedAlert
from dalsegno.client.group import CallGroup, read_all, read_as
from dalsegno.errors import NotDelivered

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
        reply, is_new = await self._transport.put(_path(id), dict[str, Any], body)
        return SavedAlert(read_as(Alert, reply), is_new, reply.get("secret"))

    async def _list(self) -> Alerts:
        return await read_all(self._transport, "alerts", Alert)

    async def _get(self, id: str) -> Alert:
        return read_as(Alert, await self._transport.get(_path(id), dict[str, Any]))

    async def _rotate(self, id: str, overlap: float | str) -> str:
        """Never repeated: the first secret would be lost."""
        body = {"overlap": overlap}
        return (await self._transport.send("POST", f"{_path(id)}/secret", _Rotated, body)).secret

    async def _test(self, id: str) -> None:
        done = await self._transport.send("POST", f"{_path(id)}/test", _Tested)
        if not done.delivered:
            raise NotDelivered(done.error or "the receiver did not accept the message")

    async def _remove(self, id: str) -> None:
        await self._transport.send("DELETE", _path(id), Any)


class _Tested(Struct):
    delivered: bool
    error: str | None = None


class _Rotated(Struct):
    secret: str


def _path(id: str) -> str:
    return f"alerts/{quote(id, safe='')}"
