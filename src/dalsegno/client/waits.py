"""Waits for executions to end, of all callers of one client over one stream.

A stream names the executions that it is about when it is opened. Those that somebody waits for later get a second
stream, which is opened anew with every few of them; once it has grown, both become one. So a client has two of these
streams at most (one more for every 10,000 executions), and an execution is named a few times, however many others
there are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import httpx
import msgspec
from msgspec import Struct

from dalsegno.client.problems import NotThisServer, Problem, RouteMissing, error_of
from dalsegno.client.replies import ExecutionReply
from dalsegno.client.stream import END, Message, messages
from dalsegno.client.transport import Retries, Transport
from dalsegno.errors import TooManyRequests, Unavailable, UsageError

PATH = "executions/endings"
MOST_AWAITED = 10_000
"""By one stream; a server takes no more."""
STREAM_SECONDS = 60.0
GATHERING = 0.02
"""Seconds between two streams, in which more executions may come together."""
LONGER_GATHERING = 0.25
"""The same where every execution that comes is asked for together with all others."""
MISSING_SECONDS = 60.0
"""For which a server that has no such stream is not asked for it."""

_decode_ended = msgspec.json.Decoder(ExecutionReply).decode


class Refused(Struct):
    id: str
    problem: Problem


_decode_refused = msgspec.json.Decoder(Refused).decode


class _Awaited:
    """An execution, and who waits for it."""

    __slots__ = ("checked", "retries", "waiters")

    def __init__(self, retries: Retries) -> None:
        self.retries = retries
        self.checked = asyncio.Event()
        """The server has looked, and it had not ended."""
        self.waiters: set[asyncio.Future[ExecutionReply]] = set()

    def tell(self, reply: ExecutionReply) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(reply)

    def fail(self, error: BaseException) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class _Round:
    """One stream, and the executions that it is about."""

    def __init__(self, executions: list[str]) -> None:
        self.executions = executions
        self.task: asyncio.Task[None] | None = None
        self.is_cut = False
        """Its executions are to be asked for together with others."""

    def cut(self) -> None:
        self.is_cut = True
        if self.task is not None:
            self.task.cancel()


class Waits:
    """Of one client; runs on the loop of its transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._awaited: dict[str, _Awaited] = {}
        self._new: dict[str, None] = {}
        """Awaited, and not named by any stream."""
        self._rounds: set[_Round] = set()
        self._most_rounds = 2
        self._opening: asyncio.Task[None] | None = None
        self._opened_at = 0.0
        self._gathering = GATHERING
        self._missing_until = 0.0
        transport.on_close(self._close)

    @property
    def are_possible(self) -> bool:
        """Whether the server is not known to lack the stream."""
        return time.monotonic() >= self._missing_until

    async def ended(self, execution: str, timeout: float | None) -> ExecutionReply:  # noqa: ASYNC109 - as users know it
        """The execution once it has ended. Raises TimeoutError where the server says that it has not, in that time; and
        RouteMissing where the server is older than the stream."""
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
            waiter.exception()  # its caller may have been cancelled: asyncio is not to log it
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
        """After a moment, in which others may come, unless the last stream was opened long ago."""
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
        """Puts the executions of small streams to the new ones, so that few streams are left."""
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
        if error is not None:
            await self._pause(one, error)
        self._ask_for(one.executions)

    async def _pause(self, one: _Round, error: Exception) -> None:
        """Before they are asked for again. Those whose patience is over fail."""
        if self._rounds and isinstance(error, TooManyRequests):
            self._most_rounds, self._gathering = (
                1,
                LONGER_GATHERING,
            )  # the key may have no more than one stream
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
        """Until the stream ends. What interrupted it, if it may be opened again."""
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
        text = "\n".join(message.data)
        try:
            if message.kind == "ended":
                reply = _decode_ended(text)
                if (awaited := self._awaited.pop(reply.id, None)) is not None:
                    awaited.tell(reply)
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
                awaited.retries.progress()
                awaited.checked.set()

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
