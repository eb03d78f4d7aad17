"""Time limits of connections: a connection is closed if a request does not arrive in time, or a reply is not read.

uvicorn limits only the time between two requests of a connection. Without further limits, a connection that sends
nothing, or a header byte by byte, would stay open for ever; and one that reads nothing would hold its reply and its
handler for ever.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dalsegno.errors import BadRequest
from dalsegno.server.http.deadlines import CLOSE_CONNECTION
from dalsegno.server.http.problems import TITLES, problem
from dalsegno.server.http.responses import ALWAYS, CoalescingTransport
from dalsegno.server.settings import ServerSettings

LARGEST_HEADERS = 64 * 1024
"""Bytes of an incomplete request that uvicorn lets the parser buffer."""


class TimeLimitedProtocol(H11Protocol):
    """An HTTP/1.1 protocol with time limits for headers and replies.

    Headers: the time runs from the start of the connection, and after each reply from the next byte, until the
    headers of a request are complete. The body has a time limit of its own (`request.read_body`).

    Replies: the time runs while more is waiting than the transport buffers (64 KiB), until the rest has shrunk to a
    quarter; and once a reply is complete, until its last byte has been sent. An event stream that is merely slow
    stays between the two: it holds no more than that much memory and is not closed.
    """

    header_seconds: float
    reply_seconds: float
    idle_seconds: int
    _headers_due: asyncio.TimerHandle | None = None
    _reading_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(CoalescingTransport(transport))  # type: ignore[arg-type]  # a transport in all but name
        self.app_state = {**self.app_state, CLOSE_CONNECTION: transport.abort}
        self.timeout_keep_alive = self.idle_seconds
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting_for_headers()
        self._stop_waiting_for_reader()
        super().connection_lost(exc)

    # -- requests ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting_for_headers()
        elif self._headers_due is None:
            self._wait_for_headers()

    def _is_answering(self) -> bool:
        cycle = getattr(self, "cycle", None)  # None before the first request, despite its annotation
        return cycle is not None and not cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._headers_due = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_waiting_for_headers(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def send_400_response(self, msg: str) -> None:
        """Answer input that is not HTTP, or headers larger than the parser buffers, with a problem document."""
        status, detail = 400, "this is not a readable HTTP request"
        if len(self.conn.trailing_data[0]) > LARGEST_HEADERS:
            status, detail = 431, f"the headers are larger than {LARGEST_HEADERS:,} bytes"
        reply = problem(status, BadRequest.code, detail)
        headers = [*reply.raw_headers, *ALWAYS, (b"connection", b"close")]
        event = h11.Response(status_code=status, headers=headers, reason=TITLES[status].encode())
        for each in (event, h11.Data(data=bytes(reply.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(each) or b"")
        self.transport.close()

    # -- replies ----------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting_for_reader()
        if not self._is_answering():
            self._wait_for_the_rest()

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._wait_for_the_rest()
        super().on_response_complete()

    def _wait_for_the_rest(self) -> None:
        if self.transport.get_write_buffer_size():
            self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        self._stop_waiting_for_reader()
        self._reading_due = self.loop.call_later(self.reply_seconds, self._give_up)

    def _give_up(self) -> None:
        """Abort the connection. Closing it would wait until everything was read."""
        unread = self.transport.get_write_buffer_size() > 0
        if self.flow.write_paused or (unread and not self._is_answering()):
            self.transport.abort()

    def _stop_waiting_for_reader(self) -> None:
        if self._reading_due is not None:
            self._reading_due.cancel()
            self._reading_due = None


def http_protocol(settings: ServerSettings) -> type[asyncio.Protocol]:
    """Return the protocol class for ``uvicorn.Config(http=…)``."""
    limits = {
        "header_seconds": settings.header_seconds,
        "reply_seconds": settings.reply_seconds,
        "idle_seconds": settings.idle_seconds,
    }
    return type("HttpProtocol", (TimeLimitedProtocol,), limits)
