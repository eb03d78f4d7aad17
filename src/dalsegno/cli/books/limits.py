"""Limits by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from dalsegno.app import App
from dalsegno.cli.books.opening import Shelf, all_told
from dalsegno.engine.limits import OperatorLimits
from dalsegno.errors import NotFound
from dalsegno.model.limits import Allowance, LimitView, parse_rate

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


class Limits(Protocol):
    """What the engine gives operators is one as it stands."""

    async def page(self, after: str = "", limit: int = 100) -> list[LimitView]: ...

    async def set(self, key: str, concurrency: int | None = None, rate: str | None = None) -> LimitView: ...

    async def remove(self, key: str) -> bool:
        """Whether there was one."""


class LimitsThere:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def page(self, after: str = "", limit: int = 100) -> list[LimitView]:
        found = [_view(told) for told in await all_told(self._transport, "limits", most=limit)]
        return [view for view in found if view.key > after]

    async def set(self, key: str, concurrency: int | None = None, rate: str | None = None) -> LimitView:
        body = {"concurrency": concurrency, "rate": rate}
        return _view(await self._transport.send("PUT", _path(key), dict[str, Any], body, repeatable=True))

    async def remove(self, key: str) -> bool:
        try:
            await self._transport.send("DELETE", _path(key), Any)
        except NotFound:
            return False
        return True


def _path(key: str) -> str:
    return f"limits/{quote(key, safe='')}"


def _view(told: dict[str, Any]) -> LimitView:
    rate = told["rate"]
    rule = Allowance(told["concurrency"], parse_rate(rate) if rate is not None else None)
    return LimitView(told["key"], rule, rule, told["in_use"], told["waiting"], told["opens_at"])


def _here(app: App) -> Limits:
    return OperatorLimits(app.client.stack)


LIMITS: Shelf[Limits] = Shelf(_here, LimitsThere)
