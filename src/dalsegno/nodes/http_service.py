"""The service ``http``: an HTTP client that is loaded, and opened, by the first request that needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dalsegno.nodes.egress import ALLOW_EVERYTHING, EgressPolicy

if TYPE_CHECKING:
    from dalsegno.nodes.http_client import HttpClients


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What operators allow one run of the node, whatever its document asks for."""

    timeout: float = 300.0
    response_bytes: int = 64 * 1024 * 1024


DEFAULT_HTTP_LIMITS = HttpLimits()


class HttpService:
    """``make`` is for tests that bring their own clients."""

    def __init__(
        self,
        egress: EgressPolicy = ALLOW_EVERYTHING,
        make: Callable[[], HttpClients] | None = None,
        limits: HttpLimits = DEFAULT_HTTP_LIMITS,
    ) -> None:
        self.egress = egress
        self.limits = limits
        self._make = make
        self._clients: HttpClients | None = None

    def clients(self) -> HttpClients:
        if self._clients is None:
            self._clients = self._make() if self._make is not None else self._load()
        return self._clients

    async def close(self) -> None:
        clients, self._clients = self._clients, None
        if clients is not None:
            await clients.close()

    def _load(self) -> HttpClients:
        from dalsegno.nodes.http_client import HttpClients  # noqa: PLC0415 - loaded by the first request

        return HttpClients(self.egress)
