"""The service ``http``: an HTTP client that is imported and opened by the first request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dalsegno.nodes.http.egress import ALLOW_EVERYTHING, EgressPolicy

if TYPE_CHECKING:
    from dalsegno.nodes.http.client import HttpClients


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Operator limits for one run of the node, regardless of the document."""

    timeout: float = 300.0
    response_bytes: int = 64 * 1024 * 1024


DEFAULT_HTTP_LIMITS = HttpLimits()


class LargeBodies(Protocol):
    """Reads large responses off the event loop, within memory limits, in turns by workflow."""

    async def run(self, workflow: str, job: str, *arguments: Any) -> Any:
        """Return the result of ``response`` (`body.body_json`) or ``page`` (`body.page_json`)."""

    def place(self, workflow: str, size: int) -> AbstractAsyncContextManager[None]:
        """Reserve that many bytes of memory within the context."""

    async def close(self) -> None: ...


class Unbounded:
    """The implementation without an engine: in a thread, without a memory limit."""

    async def run(self, workflow: str, job: str, *arguments: Any) -> Any:
        from dalsegno.nodes.http import body as http_body  # noqa: PLC0415 - only for large responses

        jobs: dict[str, Callable[..., Any]] = {"response": http_body.body_json, "page": http_body.page_json}
        return await asyncio.to_thread(jobs[job], *arguments)

    def place(self, workflow: str, size: int) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def close(self) -> None: ...


class HttpService:
    """``make`` is for tests with their own clients."""

    def __init__(
        self,
        egress: EgressPolicy = ALLOW_EVERYTHING,
        make: Callable[[], HttpClients] | None = None,
        limits: HttpLimits = DEFAULT_HTTP_LIMITS,
        large: LargeBodies | None = None,
    ) -> None:
        self.large = large or Unbounded()
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
        await self.large.close()

    def _load(self) -> HttpClients:
        from dalsegno.nodes.http.client import HttpClients  # noqa: PLC0415 - loaded by the first request

        return HttpClients(self.egress)
