"""Heartbeats from a thread of their own: they must not depend on an event loop that is busy."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from dalsegno.adapters.postgres.connections import ConnectionMode, connect
from dalsegno.adapters.postgres.errors import driver_errors
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.errors import Unavailable

ANSWER_SECONDS = 10.0
"""A beat that takes longer has failed; the next one follows soon."""


class Heartbeats:
    """An event loop with one connection, in a thread that begins with the first beat."""

    def __init__(self, url: str, mode: ConnectionMode) -> None:
        self._url = url
        self._mode = mode
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._one_at_a_time = asyncio.Lock()
        self._closed = False

    def beat(self, *parameters: object) -> None:
        """Send a heartbeat; blocks until it is stored. May be called from any thread."""
        loop = self._running_loop()
        done = asyncio.run_coroutine_threadsafe(self._send(parameters), loop)
        with driver_errors():
            try:
                done.result(ANSWER_SECONDS + 1)
            finally:
                done.cancel()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._disconnect(), loop).result(ANSWER_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._closed:
                raise Unavailable("the store is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="dalsegno-postgres-heartbeat", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _send(self, parameters: tuple[object, ...]) -> None:
        async with asyncio.timeout(ANSWER_SECONDS), self._one_at_a_time:
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(self._url, timeout=ANSWER_SECONDS, **self._mode.options())
            try:
                await self._connection.execute(SQL["leases.beat"], *parameters)
            except BaseException:
                # Whatever the error, the next beat begins with a new connection.
                self._connection.terminate()
                raise

    async def _disconnect(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            self._connection.terminate()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
