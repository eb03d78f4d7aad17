"""A bounded pool of connections to one server, each with one request at a time, assigned in order of arrival.

The pool of httpx scans all its connections and all waiting requests whenever either changes, and a request that is
cancelled while it gets its connection leaks that connection. Therefore each connection here is an httpx client of
its own, requests wait for one in a queue, and a connection whose request did not end normally is closed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx


class Connections:
    """The pool: first come, first served. It runs on one event loop."""

    def __init__(
        self, make: Callable[[], httpx.AsyncClient], most: int, silence: float, *, are_shared: bool = False
    ) -> None:
        """``make``: creates a connection. ``silence``: seconds without an answer of the server after which a
        request that waits for a connection fails. ``are_shared``: ``make`` always returns the same client, which
        is not closed here."""
        self._make = make
        self._left = most
        self._silence = silence
        self._are_shared = are_shared
        self._idle: list[httpx.AsyncClient] = []
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._answered_at = time.monotonic()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a connection, including abandoned ones."""
        return len(self._queue)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """Lend a connection for one request. Raises httpx.PoolTimeout if all are in use and the server answers
        nothing."""
        await self._enter()
        http: httpx.AsyncClient | None = None
        try:
            http = self._idle.pop() if self._idle else self._make()
            yield http
            self._answered_at = time.monotonic()
            self._idle.append(http)
        except BaseException:
            if http is not None:
                self._discard(http)
            raise
        finally:
            self._leave()

    async def close(self) -> None:
        """Close the pool. Connections in use are closed by their users."""
        idle, self._idle = self._idle, []
        for http in idle:
            self._discard(http)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _enter(self) -> None:
        if self._left > 0:
            self._left -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await self._wait_for(turn)
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave()
            turn.cancel()
            raise

    async def _wait_for(self, turn: asyncio.Future[None]) -> None:
        began = time.monotonic()
        while not turn.done():
            await asyncio.wait((turn,), timeout=self._silence)
            silent = time.monotonic() - max(self._answered_at, began)
            if not turn.done() and silent >= self._silence:
                raise httpx.PoolTimeout(f"it has not answered any request for {silent:.0f} s")

    def _leave(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._left += 1

    def _discard(self, http: httpx.AsyncClient) -> None:
        """Close a connection in a task of its own, because its user may have been cancelled."""
        if self._are_shared:
            return
        closing = asyncio.get_running_loop().create_task(http.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
