"""Waits for executions: for their ends, of which all callers of one client share a stream, and for events as they
happen.

A stream of ends names its executions when it is opened. Executions awaited later get a second stream, which is reopened
with every few of them; once it has grown, both are merged. A client therefore has at most two of these streams (one
more for every 10,000 executions), and an execution is named a few times, regardless of the number of others. A stream
of events is resumed after a broken connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct

from dalsegno.client.problems import NotThisServer, Problem, RouteMissing, error_of
from dalsegno.client.schemas import EventReply, ExecutionReply
from dalsegno.client.transport import Retries, Transport
from dalsegno.errors import TooManyRequests, Unavailable, UsageError
from dalsegno.model.event import Event

PATH = "executions/endings"
MOST_AWAITED = 10_000
"""Executions of one stream; the server's limit."""
STREAM_SECONDS = 60.0
GATHERING = 0.02
"""Seconds between two streams, in which more executions are collected."""
LONGER_GATHERING = 0.25
"""The same while every new execution is requested together with all others."""
MISSING_SECONDS = 60.0
"""Seconds for which the stream is not requested from a server that lacks it."""

_decode_ended = msgspec.json.Decoder(ExecutionReply).decode


class Refused(Struct):
    id: str
    problem: Problem


_decode_refused = msgspec.json.Decoder(Refused).decode


class _Awaited:
    """An execution and its waiting callers."""

    __slots__ = ("checked", "retries", "waiters")

    def __init__(self, retries: Retries) -> None:
        self.retries = retries
        retries.progress()  # it may be requested late: the time counts from the first stream that fails
        self.checked = asyncio.Event()
        """Set when the server has checked that the execution had not ended."""
        self.waiters: set[asyncio.Future[ExecutionReply]] = set()

    def resolve(self, reply: ExecutionReply) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(reply)

    def fail(self, error: BaseException) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class _Round:
    """One stream and its executions."""

    def __init__(self, executions: list[str]) -> None:
        self.executions = executions
        self.task: asyncio.Task[None] | None = None
        self.has_answered = False
        """Whether the server has sent a message about an execution, and has not only opened the stream."""
        self.is_cut = False
        """Whether the stream was ended to merge its executions with others."""

    def cut(self) -> None:
        self.is_cut = True
        if self.task is not None:
            self.task.cancel()


class Waits:
    """The waits of one client, on the event loop of its transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._awaited: dict[str, _Awaited] = {}
        self._new: dict[str, None] = {}
        """Awaited executions that no stream names yet."""
        self._rounds: set[_Round] = set()
        self._most_rounds = 2
        self._opening: asyncio.Task[None] | None = None
        self._opened_at = 0.0
        self._gathering = GATHERING
        self._missing_until = 0.0
        transport.on_close(self._close)

    @property
    def are_possible(self) -> bool:
        """Whether the server may support the stream: it is not known to lack it."""
        return time.monotonic() >= self._missing_until

    async def ended(self, execution: str, timeout: float | None) -> ExecutionReply:  # noqa: ASYNC109 - as users know it
        """Return the execution once it has ended. Raises TimeoutError if the server reports that it has not ended
        in that time, and RouteMissing if the server is older than the stream."""
        awaited = self._awaited.get(execution)
        if awaited is None:
            awaited = self._awaited[execution] = _Awaited(self._transport.retries())
            self._ask_for([execution])
        waiter: asyncio.Future[ExecutionReply] = asyncio.get_running_loop().create_future()
        awaited.waiters.add(waiter)
        try:
            if timeout is not None:
                await asyncio.wait((waiter,), timeout=timeout)
                await _first_of(waiter, awaited.checked)
                if not waiter.done():
                    raise TimeoutError
            return await waiter
        finally:
            self._forget(execution, awaited, waiter)

    def _forget(self, execution: str, awaited: _Awaited, waiter: asyncio.Future[ExecutionReply]) -> None:
        awaited.waiters.discard(waiter)
        if waiter.done() and not waiter.cancelled():
            waiter.exception()  # retrieve it so that asyncio does not log it: the caller may have been cancelled
        if not awaited.waiters and self._awaited.get(execution) is awaited:
            del self._awaited[execution]
            self._new.pop(execution, None)
            if not self._awaited:
                for each in self._rounds:
                    each.cut()

    def _close(self) -> None:
        closed = UsageError("the client was closed while this call was waiting")
        for execution in list(self._awaited):
            self._end(execution, closed)

    # -- streams ----------------------------------------------------------------------------------------------

    def _ask_for(self, executions: Iterable[str]) -> None:
        self._new.update(dict.fromkeys(each for each in executions if each in self._awaited))
        if self._new and (self._opening is None or self._opening.done()):
            self._opening = self._transport.run(self._open_soon())

    async def _open_soon(self) -> None:
        """Open a stream after a short delay to collect executions, or at once if the last one was opened long ago."""
        await asyncio.sleep(max(0.0, self._opened_at + self._gathering - time.monotonic()))
        self._merge()
        while self._new:
            chosen = list(self._new)[:MOST_AWAITED]
            for execution in chosen:
                del self._new[execution]
            made = _Round(chosen)
            self._rounds.add(made)
            made.task = self._transport.run(self._follow(made))
        self._opened_at = time.monotonic()

    def _merge(self) -> None:
        """Merge the executions of small streams with the new ones, so that few streams remain."""
        full = len(self._awaited) // MOST_AWAITED
        for each in sorted(self._rounds, key=lambda one: len(one.executions)):
            is_small = len(each.executions) <= 2 * len(self._new)
            if is_small or len(self._rounds) >= self._most_rounds + full:
                self._rounds.discard(each)
                each.cut()
                self._new.update(dict.fromkeys(one for one in each.executions if one in self._awaited))

    async def _follow(self, one: _Round) -> None:
        try:
            error = await self._read(one)
        except asyncio.CancelledError:
            if one.is_cut:
                return
            raise
        finally:
            self._rounds.discard(one)
            if one.has_answered:
                self._note_progress(one)
        if error is not None:
            await self._pause(one, error)
        self._ask_for(one.executions)

    async def _pause(self, one: _Round, error: Exception) -> None:
        """Pause before the executions are requested again; those whose time is over fail."""
        if self._rounds and isinstance(error, TooManyRequests):
            self._most_rounds, self._gathering = (
                1,
                LONGER_GATHERING,
            )  # the key may not have more than one stream
        pauses: list[float] = []
        retries = self._transport.retries()
        for execution in one.executions:
            if (awaited := self._awaited.get(execution)) is None:
                continue
            try:
                pauses.append(awaited.retries.next_pause(error))
            except Exception as given_up:  # noqa: BLE001 - the callers raise it
                self._end(execution, given_up)
        if pauses:
            await retries.pause_for(min(pauses), error)

    async def _read(self, one: _Round) -> Exception | None:
        """Read until the stream ends. Return the error that interrupted it, if it may be reopened."""
        named = {"executions": one.executions, "seconds": STREAM_SECONDS}
        is_over = False
        try:
            async with self._transport.open_stream(PATH, content=msgspec.json.encode(named)) as response:
                async for message in messages(response.aiter_lines()):
                    is_over = is_over or message.kind == END
                    self._take(one, message)
        except (httpx.TransportError, Unavailable, TooManyRequests) as error:
            return error
        except RouteMissing as missing:
            self._missing_until = time.monotonic() + MISSING_SECONDS
            self._end_all(one, missing)
        except Exception as error:  # noqa: BLE001 - the callers raise it
            self._end_all(one, error)
        else:
            return (
                None if is_over else httpx.RemoteProtocolError("the stream ended before the executions did")
            )
        return None

    def _take(self, one: _Round, message: Message) -> None:
        one.has_answered = True
        text = "\n".join(message.data)
        try:
            if message.kind == "ended":
                reply = _decode_ended(text)
                if (awaited := self._awaited.pop(reply.id, None)) is not None:
                    awaited.resolve(reply)
            elif message.kind == "refused":
                refused = _decode_refused(text)
                self._end(refused.id, error_of(refused.problem))
            elif message.kind == "checked":
                self._note_checked(one)
        except msgspec.DecodeError as error:
            raise NotThisServer(
                f"the server at {self._transport.url} streams endings that this version does not understand: {error}"
            ) from None

    def _note_checked(self, one: _Round) -> None:
        for execution in one.executions:
            if (awaited := self._awaited.get(execution)) is not None:
                awaited.checked.set()

    def _note_progress(self, one: _Round) -> None:
        for execution in one.executions:
            if (awaited := self._awaited.get(execution)) is not None:
                awaited.retries.progress()

    def _end(self, execution: str, error: BaseException) -> None:
        if (awaited := self._awaited.pop(execution, None)) is not None:
            awaited.fail(error)

    def _end_all(self, one: _Round, error: BaseException) -> None:
        for execution in one.executions:
            self._end(execution, error)


async def _first_of(waiter: asyncio.Future[ExecutionReply], checked: asyncio.Event) -> None:
    looking = asyncio.ensure_future(checked.wait())
    try:
        await asyncio.wait((waiter, looking), return_when=asyncio.FIRST_COMPLETED)
    finally:
        looking.cancel()


# -- events of an execution ------------------------------------------------------------------------------------

END = "end"
_decode = msgspec.json.Decoder(EventReply).decode


class Message:
    """One server-sent event, assembled from its lines."""

    __slots__ = ("data", "id", "kind")

    def __init__(self) -> None:
        self.kind = "message"
        self.data: list[str] = []
        self.id = ""

    def add(self, line: str) -> None:
        """Add a line. Comments, which keep a connection alive, begin with a colon."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self.kind = value
        elif name == "data":
            self.data.append(value)
        elif name == "id":
            self.id = value


async def messages(lines: AsyncIterator[str]) -> AsyncIterator[Message]:
    """Yield messages. A message ends with an empty line; one cut off by a broken connection is dropped."""
    message = Message()
    async for line in lines:
        if line:
            message.add(line)
        elif message.data or message.kind != "message":
            yield message
            message = Message()


async def stream_events(transport: Transport, execution: str, after: int = 0) -> AsyncIterator[Event]:
    """Yield every event after that number exactly once and in order, until the execution has ended."""
    retries = transport.retries()
    path = f"executions/{quote(execution, safe='')}/stream"
    while True:
        try:
            async with transport.open_stream(path, {"Last-Event-ID": str(after)}) as response:
                retries.progress()
                async for message in messages(response.aiter_lines()):
                    if message.kind == END:
                        return
                    event = _event(transport, execution, message)
                    if event is not None and event.seq > after:
                        after = event.seq
                        yield event
            broken: Exception = httpx.RemoteProtocolError("the stream ended before the execution did")
        except (httpx.TransportError, Unavailable, TooManyRequests) as error:
            broken = error
        await retries.pause(broken)


def _event(transport: Transport, execution: str, message: Message) -> Event | None:
    """Return the event of a message; None for other kinds of messages."""
    if not message.id:
        return None
    try:
        return _decode("\n".join(message.data)).event(execution)
    except msgspec.DecodeError as error:
        raise NotThisServer(
            f"the server at {transport.url} streams events that this version does not understand: {error}"
        ) from None
