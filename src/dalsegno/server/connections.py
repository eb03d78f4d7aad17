"""Connections: one that does not bring a request in time is closed.

uvicorn limits only the time between two requests of a connection. Without this, one that sends nothing at all, or a
header byte by byte, would live for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from dalsegno.server.settings import ServerSettings


class ImpatientProtocol(H11Protocol):
    """The time runs from the connection's first moment, and after each reply from the next byte, until the headers of a
    request are complete. Its body has a time limit of its own (`bodies`)."""

    header_seconds: float
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()
        elif self._deadline is None:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        cycle = getattr(self, "cycle", None)  # None before the first request, whatever its annotation says
        return cycle is not None and not cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def http_protocol(settings: ServerSettings) -> type[asyncio.Protocol]:
    """For ``uvicorn.Config(http=…)``."""
    return type("HttpProtocol", (ImpatientProtocol,), {"header_seconds": settings.header_seconds})
