"""A connection: handshake, heartbeats, alarms of the broker, channels.

What is written in one turn of the event loop leaves in one piece.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from dalsegno.adapters.rabbitmq.amqp import frames
from dalsegno.adapters.rabbitmq.amqp.address import Address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel
from dalsegno.adapters.rabbitmq.amqp.errors import FRAME_ERROR, ConnectionLost, ProtocolError
from dalsegno.adapters.rabbitmq.amqp.fields import LONGEST_SHORT_STRING
from dalsegno.adapters.rabbitmq.amqp.frames import FrameReader, Method, Name
from dalsegno.adapters.tls import tls_problem
from dalsegno.version import __version__

FRAME_MAX = 131_072
CHANNELS = 64
MISSED = 2
"""Intervals without a sign of life after which the broker counts as lost."""
CLOSE_TIMEOUT = 2.0
_CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}


class Connection(asyncio.Protocol):
    def __init__(self, address: Address, name: str) -> None:
        self.address = address
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.frame_max = FRAME_MAX
        self.lost: ConnectionLost | None = None
        """Why the connection ended; None while it is open."""
        self.blocked = ""
        """The broker's reason to accept no messages now; empty if it accepts them."""
        self.is_congested = False
        """More was written than the broker has read."""
        self.server: dict[str, Any] = {}
        """What the broker says of itself."""
        self.on_lost: Callable[[ConnectionLost], None] = lambda error: None
        self.on_blocked: Callable[[str], None] = lambda reason: None
        """Receives the reason, or an empty string when messages are accepted again."""
        self.on_writable: Callable[[], None] = lambda: None
        """Called when a congestion is over."""
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._channels: dict[int, Channel] = {}
        self._expected: tuple[tuple[Name, ...], asyncio.Future[Method]] | None = None
        self._out: list[bytes] = []
        self._received_at = self._written_at = self.loop.time()
        self._closed: asyncio.Future[None] = self.loop.create_future()
        """Done when the transport has closed its socket."""
        self._heartbeat = 0.0
        self._beat: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, address: Address, *, name: str = "dalsegno") -> Connection:
        """Connect, authenticate and open the vhost. Raise `ConnectionLost` with a sentence that says what failed."""
        connection = cls(address, name)
        try:
            async with asyncio.timeout(address.connection_timeout):
                await connection.loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.host if address.tls is not None else None,
                )
                await connection._greet()
        except TimeoutError:
            connection.abort("it did not answer in time")
            raise ConnectionLost(
                f"RabbitMQ at {address.shown} did not answer within {address.connection_timeout:g} s"
            ) from None
        except ssl.SSLError as error:
            raise ConnectionLost(f"RabbitMQ at {address.shown}: {tls_problem(error, 'cacertfile')}") from None
        except OSError as error:
            raise ConnectionLost(f"RabbitMQ at {address.shown} cannot be reached: {error}") from None
        except ConnectionLost as error:
            connection.abort(str(error))
            raise ConnectionLost(f"RabbitMQ at {address.shown}: {error}", error.reply_code) from None
        except BaseException:
            connection.abort("it is not needed any more")
            await connection.closed()
            raise
        return connection

    async def channel(self) -> Channel:
        if self.lost is not None:
            raise self.lost
        number = next(number for number in range(1, CHANNELS + 1) if number not in self._channels)
        channel = self._channels[number] = Channel(self, number)
        await channel.call(frames.CHANNEL_OPEN)
        return channel

    async def close(self) -> None:
        """Close the connection in order: what was written before is processed."""
        if self.lost is None:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    closing = self._expect(frames.CONNECTION_CLOSE_OK)
                    self.write(
                        frames.method_frame(0, frames.CONNECTION_CLOSE, reply_code=200, reply_text="done")
                    )
                    await closing
            except (TimeoutError, ConnectionLost):
                pass
        self.abort("it was closed by this process")
        await self.closed()

    async def closed(self) -> None:
        """Wait until the socket of a connection that has ended is closed."""
        if self._transport is not None:
            await asyncio.wait({self._closed}, timeout=CLOSE_TIMEOUT)

    def abort(self, reason: str, reply_code: int = 0) -> None:
        """End the connection at once."""
        self._end(ConnectionLost(reason, reply_code))
        if self._transport is not None:
            self._transport.abort()

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.lost is not None:
            return
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and self.lost is None:
            self._written_at = self.loop.time()
            self._transport.write(b"".join(out))

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        self.on_writable()

    # -- what arrives -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop have no base class in common with asyncio's.
        self._transport = made = cast(asyncio.Transport, transport)
        if self.lost is not None:
            made.abort()

    def data_received(self, data: bytes) -> None:
        self._received_at = self.loop.time()
        try:
            for frame in self._reader.feed(data):
                if frame.channel:
                    channel = self._channels.get(frame.channel)
                    if channel is not None:
                        channel.received(frame)
                elif frame.type == frames.METHOD:
                    self._method(frames.read_method(frame.payload))
        except ProtocolError as error:
            self.abort(str(error), FRAME_ERROR)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc is not None else "RabbitMQ has closed the connection"
        self._end(ConnectionLost(reason))
        if not self._closed.done():
            self._closed.set_result(None)

    def _method(self, method: Method) -> None:
        arguments = method.arguments
        if method.name == frames.CONNECTION_CLOSE:
            self.write(frames.method_frame(0, frames.CONNECTION_CLOSE_OK))
            self._flush()
            self._end(ConnectionLost(arguments["reply_text"], arguments["reply_code"]))
            if self._transport is not None:
                self._transport.close()
        elif method.name == frames.CONNECTION_BLOCKED:
            self.blocked = arguments["reason"] or "an alarm"
            self.on_blocked(self.blocked)
        elif method.name == frames.CONNECTION_UNBLOCKED:
            self.blocked = ""
            self.on_blocked("")
        elif self._expected is not None and method.name in self._expected[0]:
            (_, future), self._expected = self._expected, None
            if not future.done():
                future.set_result(method)
        else:
            raise ProtocolError(f"the server sent the method {method.name} out of turn")

    def forget(self, channel: Channel) -> None:
        self._channels.pop(channel.number, None)

    def _end(self, error: ConnectionLost) -> None:
        if self.lost is not None:
            return
        self.lost = error
        self._out.clear()
        if self._beat is not None:
            self._beat.cancel()
        if self._expected is not None and not self._expected[1].done():
            self._expected[1].set_exception(error)
        for channel in list(self._channels.values()):
            channel.end(error)
        self.on_lost(error)

    # -- handshake and heartbeats -------------------------------------------------------------------------------

    def _expect(self, *names: Name) -> asyncio.Future[Method]:
        future: asyncio.Future[Method] = self.loop.create_future()
        if self.lost is not None:
            future.set_exception(self.lost)
        else:
            self._expected = (names, future)
        return future

    async def _greet(self) -> None:
        self.write(frames.HEADER)
        start = await self._expect(frames.CONNECTION_START)
        self.server = start.arguments["server_properties"]
        if b"PLAIN" not in start.arguments["mechanisms"].split():
            raise ConnectionLost("it does not offer authentication by PLAIN")
        tuning = self._expect(frames.CONNECTION_TUNE)
        self.write(self._authentication())
        await self._tune((await tuning).arguments)

    def _authentication(self) -> bytes:
        properties = {
            "product": "Dal Segno",
            "version": __version__,
            "platform": "Python",
            "connection_name": self.name,
            "capabilities": _CAPABILITIES,
        }
        login = f"\0{self.address.user}\0{self.address.password}".encode()
        return frames.method_frame(
            0,
            frames.CONNECTION_START_OK,
            client_properties=properties,
            mechanism="PLAIN",
            response=login,
            locale="en_US",
        )

    async def _tune(self, offered: dict[str, int]) -> None:
        self.frame_max = min(offered["frame_max"] or FRAME_MAX, FRAME_MAX)
        wanted = self.address.heartbeat
        heartbeat = min(wanted, offered["heartbeat"]) if wanted and offered["heartbeat"] else wanted
        self.write(
            frames.method_frame(
                0,
                frames.CONNECTION_TUNE_OK,
                channel_max=min(offered["channel_max"] or CHANNELS, CHANNELS),
                frame_max=self.frame_max,
                heartbeat=heartbeat,
            )
        )
        opened = self._expect(frames.CONNECTION_OPEN_OK)
        self.write(
            frames.method_frame(
                0, frames.CONNECTION_OPEN, virtual_host=self.address.vhost[:LONGEST_SHORT_STRING]
            )
        )
        await opened
        self._heartbeat = heartbeat
        if heartbeat:
            self._beat = self.loop.call_later(heartbeat / 2, self._look)

    def _look(self) -> None:
        """Send a sign of life if nothing else was sent, and look for one of the broker."""
        now = self.loop.time()
        if now - self._received_at > MISSED * self._heartbeat:
            self.abort(f"RabbitMQ has given no sign of life for {now - self._received_at:.0f} s")
            return
        if now - self._written_at >= self._heartbeat / 2:
            self.write(frames.HEARTBEAT_FRAME)
        self._beat = self.loop.call_later(self._heartbeat / 2, self._look)
