"""Starts of executions, batched into shared requests.

A start is sent at once while few requests with starts are in flight; further ones are batched into the next
request. Every start has an idempotency key, so a request without a reply can be repeated without a second start.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import httpx
from msgspec import Struct

from dalsegno.client.problems import NotThisServer, Problem, RouteMissing, error_of
from dalsegno.client.schemas import ExecutionReply
from dalsegno.client.transport import Retries, Transport
from dalsegno.errors import TooManyRequests, Unavailable, UsageError

MOST_REQUESTS = 4
"""Requests with several starts in flight."""
MOST_SINGLE_REQUESTS = 16
"""Requests with one start each in flight."""
MOST_STARTS = 100
"""Starts in one request."""
MOST_BYTES = 60_000
"""Bytes of one request with several starts: servers decode no more than that on their event loop. A larger start is
sent alone."""
MISSING_SECONDS = 60.0
"""Seconds for which no batch is sent to a server without that route."""

REPEATABLE = (httpx.TransportError, Unavailable, TooManyRequests)


class BatchResult(Struct):
    id: str | None = None
    problem: Problem | None = None
    retry_after: float | None = None


class BatchReply(Struct):
    results: list[BatchResult]


class _Start:
    """A start whose caller waits."""

    __slots__ = ("content", "id", "is_sent", "retries")

    def __init__(self, content: bytes, retries: Retries) -> None:
        self.content = content
        self.retries = retries
        self.is_sent = False
        self.id: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def send(self) -> None:
        """Note that the start is part of a request."""
        if not self.is_sent:
            self.is_sent = True
            self.retries.begin()

    def succeed(self, execution: str) -> None:
        if not self.id.done():
            self.id.set_result(execution)

    def fail(self, error: BaseException) -> None:
        if not self.id.done():
            self.id.set_exception(error)

    def pause_after(self, error: Exception) -> float | None:
        """Return the seconds until the next attempt; None if its time is over, and then it has failed."""
        try:
            return self.retries.next_pause(error)
        except Exception as given_up:  # noqa: BLE001 - the caller raises it
            self.fail(given_up)
            return None


class Starts:
    """The starts of one client, on the event loop of its transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._queue: deque[_Start] = deque()
        self._unanswered: set[_Start] = set()
        self._requests = 0
        self._missing_until = 0.0
        self._answered_at = 0.0
        transport.on_close(self._close)

    async def start(self, content: bytes) -> str:
        """Return the id of the started execution; ``content`` is the start's JSON with an idempotency key."""
        made = _Start(content, self._transport.retries())
        self._unanswered.add(made)
        try:
            self._enqueue(made)
            return await made.id
        finally:
            self._unanswered.discard(made)

    def _close(self) -> None:
        closed = UsageError("the client was closed while this start was waiting for a reply")
        for start in self._unanswered:
            start.fail(closed)

    def _enqueue(self, start: _Start) -> None:
        if start.id.done():
            return
        self._queue.append(start)
        if self._requests < (MOST_SINGLE_REQUESTS if self._is_missing() else MOST_REQUESTS):
            self._requests += 1
            self._transport.run(self._send_all())

    def _is_missing(self) -> bool:
        """Whether the server is known to lack the batch route."""
        return time.monotonic() < self._missing_until

    async def _send_all(self) -> None:
        """Send until the queue is empty."""
        try:
            while batch := self._next_batch():
                await self._deliver(batch)
        finally:
            self._requests -= 1

    def _next_batch(self) -> list[_Start]:
        """Take a batch from the queue, without starts whose callers have gone."""
        most = 1 if self._is_missing() else MOST_STARTS
        batch: list[_Start] = []
        size = 0
        while self._queue and len(batch) < most:
            size += len(self._queue[0].content)
            if batch and size > MOST_BYTES:
                break
            start = self._queue.popleft()
            if start.id.done():
                size -= len(start.content)
            else:
                start.send()
                batch.append(start)
        return batch

    async def _deliver(self, batch: Sequence[_Start]) -> None:
        while batch:
            try:
                await (self._send_one(batch[0]) if len(batch) == 1 else self._send_together(batch))
                return
            except REPEATABLE as error:
                batch = await self._pause(batch, error)
            except RouteMissing:
                self._missing_until = time.monotonic() + MISSING_SECONDS
                await self._deliver_singly(batch)
                return
            except UsageError as error:
                if len(batch) == 1:
                    batch[0].fail(error)
                    return
                await self._deliver_singly(batch)  # one of them makes the server refuse the whole batch
                return
            except Exception as error:  # noqa: BLE001 - the callers raise it
                for start in batch:
                    start.fail(error)
                return

    async def _deliver_singly(self, batch: Sequence[_Start]) -> None:
        await asyncio.gather(*(self._deliver([start]) for start in batch))

    async def _pause(self, batch: Sequence[_Start], error: Exception) -> list[_Start]:
        """Pause, and return the starts whose time is not over. The queued ones are checked too if the server has
        answered nothing for that long."""
        now = time.monotonic()
        if now - self._answered_at > self._transport.patience:
            for start in self._queue:
                if start.retries.is_over(now):
                    start.pause_after(error)
        pauses = {start: pause for start in batch if (pause := start.pause_after(error)) is not None}
        if pauses:
            await batch[0].retries.pause_for(min(pauses.values()), error)
        return list(pauses)

    # -- requests ---------------------------------------------------------------------------------------------

    async def _send_one(self, start: _Start) -> None:
        response = await self._transport.attempt("executions", start.content)
        self._answered_at = time.monotonic()
        start.succeed(self._transport.read(response, ExecutionReply).id)

    async def _send_together(self, batch: Sequence[_Start]) -> None:
        content = b'{"starts":[' + b",".join(start.content for start in batch) + b"]}"
        response = await self._transport.attempt("executions/batch", content, may_be_missing=True)
        self._answered_at = time.monotonic()
        results = self._transport.read(response, BatchReply).results
        if len(results) != len(batch):
            raise NotThisServer(f"{len(batch)} starts were sent and {len(results)} answered")
        for start, result in zip(batch, results, strict=True):
            if result.id is not None:
                start.succeed(result.id)
            elif result.problem is not None:
                self._refuse(start, error_of(result.problem, result.retry_after))

    def _refuse(self, start: _Start, error: Exception) -> None:
        """Requeue a start that may succeed later, without delaying others; fail any other."""
        if not isinstance(error, REPEATABLE):
            start.fail(error)
        elif (pause := start.pause_after(error)) is not None:
            asyncio.get_running_loop().call_later(pause, self._enqueue, start)
